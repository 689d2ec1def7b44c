"""References in the manifests resolve, and each check detects a broken one."""

from collections.abc import Callable, Iterator

import pytest

from tests.k8s import connections, references, selection
from tests.k8s.cluster import Cluster, defects

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


def _deployment(cluster: Cluster, name: str) -> dict:
    return cluster.one("Deployment", name)["spec"]


def _judge_container(cluster: Cluster) -> dict:
    return _deployment(cluster, "judge")["template"]["spec"]["containers"][0]


def other_selector(c: Cluster) -> None:
    c.one("Service", "aggregator")["spec"]["selector"] = {"app.kubernetes.io/component": "gone"}


def other_budget(c: Cluster) -> None:
    c.one("PodDisruptionBudget", "judge")["spec"]["selector"]["matchLabels"] = {"app": "judge"}


def other_policy(c: Cluster) -> None:
    c.one("NetworkPolicy", "sandbox")["spec"]["podSelector"]["matchLabels"] = {"app": "sandbox"}


def service_of_all(c: Cluster) -> None:
    part = {"app.kubernetes.io/part-of": "plumbline"}
    c.one("Service", "aggregator")["spec"]["selector"] = part


def scaled_by_hand_too(c: Cluster) -> None:
    _deployment(c, "judge")["replicas"] = 4


def no_claim(c: Cluster) -> None:
    c.documents[:] = [d for d in c.documents if d["kind"] != "PersistentVolumeClaim"]


def unmounted(c: Cluster) -> None:
    c.pod("judge").spec["volumes"].append({"name": "more", "emptyDir": {}})


def no_account(c: Cluster) -> None:
    c.pod("judge").spec["serviceAccountName"] = "jury"


def other_port_name(c: Cluster) -> None:
    c.one("Service", "aggregator")["spec"]["ports"][0]["targetPort"] = "web"


def other_probe_port(c: Cluster) -> None:
    _judge_container(c)["readinessProbe"]["httpGet"]["port"] = "health"


def other_policy_port(c: Cluster) -> None:
    rule = c.one("NetworkPolicy", "sandbox")["spec"]["ingress"][0]
    rule["ports"][0]["port"] = 8000


def other_monitor_port(c: Cluster) -> None:
    c.one("PodMonitor", "judge")["spec"]["podMetricsEndpoints"][0]["port"] = "metrics"


def no_page(c: Cluster) -> None:
    c.documents.remove(c.one("Service", "page"))


def other_redis(c: Cluster) -> None:
    entry = next(e for e in _judge_container(c)["env"] if e["name"] == "REDIS_URL")
    entry["value"] = "redis://redis:6380/0"


def one_sandbox_too_many(c: Cluster) -> None:
    c.one("StatefulSet", "sandbox")["spec"]["replicas"] = 3


def other_namespace(c: Cluster) -> None:
    c.one("Service", "redis")["metadata"]["namespace"] = "other"


DAMAGES: list[tuple[Check, Callable[[Cluster], None]]] = [
    (selection.selectors, other_selector),
    (selection.selectors, other_budget),
    (selection.selectors, other_policy),
    (selection.selectors, service_of_all),
    (selection.scaled, scaled_by_hand_too),
    (references.volumes, no_claim),
    (references.volumes, unmounted),
    (references.accounts, no_account),
    (connections.ports, other_port_name),
    (connections.ports, other_probe_port),
    (connections.ports, other_policy_port),
    (connections.ports, other_monitor_port),
    (connections.ports, no_page),
    (connections.addresses, other_redis),
    (connections.addresses, one_sandbox_too_many),
    (connections.addresses, other_namespace),
]


def test_what_is_missing_is_found(rendered: Callable[[str], Cluster]):
    missed = []
    for check, damage in DAMAGES:
        damaged = rendered("everything")
        damage(damaged)
        if not list(check(damaged)):
            missed.append(damage.__name__)
    assert missed == []
