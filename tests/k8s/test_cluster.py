"""On the cluster of kubectl (`make test-k8s`): validation, changes of a running stack, and Jobs.

Nothing here waits for a pod. The namespace must not exist before.
"""

import os
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from tests.k8s.cluster import Cluster
from tools.k8s_validate import K8S, ROOT, Target, render

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("PLUMBLINE_TEST_CLUSTER"), reason="make test-k8s was not called"
    ),
    pytest.mark.timeout(1800),
]


AT_ONCE = ("--force", "--grace-period=0", "--wait=false")


def call(*command: object, stdin: str = "") -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, input=stdin, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def kubectl(*words: object, stdin: str = "") -> str:
    return call("kubectl", "-n", "plumbline", *words, stdin=stdin)


@pytest.fixture(scope="module", autouse=True)
def namespace() -> Iterator[None]:
    """A namespace with the Secrets; without its pods' grace, which a judge alone has for hours."""
    assert "plumbline" not in kubectl("get", "namespaces", "-o", "name")
    call(K8S / "secrets.sh")
    yield
    kubectl("delete", "jobs,deployments,statefulsets", "--all", "--wait=false")
    kubectl("delete", "pods", "--all", *AT_ONCE)
    kubectl("delete", "namespace", "plumbline", "--timeout=300s")


def server_side(cluster: Cluster) -> str:
    """What the API server says to documents whose kinds it has."""
    served = set(kubectl("api-versions").split())
    documents = [d for d in cluster.documents if d["apiVersion"] in served]
    return kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(documents))


def test_the_api_server_takes_all_targets(clusters: dict[str, Cluster]):
    for name, cluster in clusters.items():
        assert "Error" not in server_side(cluster), name


def test_minimal_meets_pod_security_restricted(minimal: Cluster):
    assert "would violate PodSecurity" not in server_side(minimal)


def test_a_stack_takes_other_images_configs_components_and_numbers_of_sandboxes():
    kubectl("apply", "-k", K8S / "overlays" / "minimal")
    names = ("sandbox-pool", "tokens", "ingress", "reward", "one-node", "gvisor")
    components = tuple(K8S / "components" / name for name in names)
    changed = Cluster(render(Target("changed", K8S / "overlays" / "minimal", components)))
    for pod in changed.pods:
        for container in pod.containers:
            container["image"] += "-next"
    documents = yaml.safe_dump_all(changed.documents)
    assert "statefulset.apps/sandbox configured" in kubectl("apply", "-f", "-", stdin=documents)
    kubectl("apply", "-k", K8S / "overlays" / "minimal")


def test_runs_have_names_and_arguments_and_the_stack_stays_when_they_go():
    kubectl("create", "job", "one", "--from=cronjob/run")
    call(K8S / "run.sh", "two", "run.seed=2", '--name=a "b" \\c')
    template = "{.spec.template.spec.containers[0].args}"
    arguments = yaml.safe_load(kubectl("get", "job", "two", "-o", f"jsonpath={template}"))
    assert arguments[-2:] == ["run.seed=2", '--name=a "b" \\c']
    kubectl("delete", "job", "one", "two")
    assert "aggregator" in kubectl("get", "deployments", "-o", "name")


def test_what_is_there_is_not_replaced():
    before = kubectl("get", "secrets", "-o", "jsonpath={.items[*].data}")
    call(K8S / "secrets.sh")
    assert kubectl("get", "secrets", "-o", "jsonpath={.items[*].data}") == before
