"""References in the manifests resolve."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.k8s import connections, references, selection
from tests.k8s.cluster import Cluster, defects
from tools.k8s_validate import K8S

Check = Callable[[Cluster], Iterator[str]]
CHECKS: list[Check] = [
    selection.selectors,
    selection.scaled,
    references.volumes,
    references.accounts,
    connections.ports,
    connections.addresses,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nothing_is_missing(clusters: dict[str, Cluster], check: Check):
    assert defects(clusters, check) == {}


def test_the_script_makes_the_keys_that_pods_mount(clusters: dict[str, Cluster]):
    script = (K8S / "secrets.sh").read_text()
    made = {line.split()[1]: line.split()[2:] for line in re.findall(r"^secret .*", script, re.M)}
    mounted = {
        (volume["secret"]["secretName"], item["key"])
        for cluster in clusters.values()
        for pod in cluster.pods
        for volume in pod.spec.get("volumes", [])
        for item in volume.get("secret", {}).get("items", [])
        if volume["secret"]["secretName"] in made
    }
    assert {(name, key) for name, key in mounted if key not in made[name]} == set()
    assert {name for name, _ in mounted} >= {"plumbline-redis", "plumbline-ray"}
