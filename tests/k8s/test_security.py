"""Every pod meets `restricted`.

Pod Security itself is tried by `make test-k8s`, and Checkov's policies by `make k8s-validate`; both
know nothing of the pods of a RayCluster.
"""

from collections.abc import Iterator

from tests.k8s.cluster import Cluster, defects

USER = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def insecure(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        context = pod.spec.get("securityContext", {})
        if {k: v for k, v in context.items() if "fsGroup" not in k} != USER:
            yield f"{pod.name}: runs as {context}"
        if pod.spec.get("automountServiceAccountToken") is not False:
            yield f"{pod.name}: a token of the API server"
        for volume in pod.spec.get("volumes", []):
            if "hostPath" in volume or "sizeLimit" not in volume.get("emptyDir", {"sizeLimit": 0}):
                yield f"{pod.name}: volume {volume['name']}"
        for container in pod.containers:
            context = {"privileged": False, **container.get("securityContext", {})}
            if context != {**LOCKED, "privileged": False}:
                yield f"{pod.name}/{container['name']}: {context}"
            for kind in ("requests", "limits"):
                if not {"cpu", "memory"} <= container.get("resources", {}).get(kind, {}).keys():
                    yield f"{pod.name}/{container['name']}: no {kind}"


def test_every_pod_is_restricted(clusters: dict[str, Cluster]):
    assert defects(clusters, insecure) == {}
