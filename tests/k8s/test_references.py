"""References in the manifests resolve: selectors, scalers, volumes, accounts, ports, addresses."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.k8s.cluster import COMPONENT, Cluster, Document, Pod, defects, env_of, selects
from tools.k8s_validate import K8S

# Of network policies and monitors for components that need not be there.
OPTIONAL = {"data", "page", "ray", "reward"}


def selectors(cluster: Cluster) -> Iterator[str]:
    """Selectors that select nothing, or not what they belong to."""
    for pod in cluster.pods:
        own = pod.owner["spec"].get("selector")
        if own and not pod.matches(own):
            yield f"{pod.name} does not select its own pods"
        for constraint in pod.spec.get("topologySpreadConstraints", []):
            if not pod.matches(constraint["labelSelector"]):
                yield f"{pod.name} is spread by other pods' labels"
    for document, selector in _selectors(cluster):
        name = f"{document['kind']}/{document['metadata']['name']}"
        owners = {pod.owner["metadata"]["name"] for pod in cluster.pods if pod.matches(selector)}
        optional = selector.get("matchLabels", {}).get(COMPONENT) in OPTIONAL
        if not owners and not (document["kind"] == "NetworkPolicy" and optional):
            yield f"{name} selects no pod"
        if document["kind"] in ("Service", "PodDisruptionBudget") and len(owners) > 1:
            yield f"{name} selects pods of several: {sorted(owners)}"
    for monitor in cluster.of("ServiceMonitor"):
        chosen = monitor["spec"]["selector"]
        optional = chosen["matchLabels"][COMPONENT] in OPTIONAL
        services = [s for s in cluster.of("Service") if selects(chosen, s["metadata"]["labels"])]
        if not optional and not services:
            yield f"ServiceMonitor/{monitor['metadata']['name']} selects no Service"


def _selectors(cluster: Cluster) -> Iterator[tuple[Document, Document]]:
    for document in cluster.of("Service"):
        yield document, {"matchLabels": document["spec"]["selector"]}
    for document in cluster.of("PodDisruptionBudget", "PodMonitor"):
        yield document, document["spec"]["selector"]
    for document in cluster.of("NetworkPolicy"):
        yield document, document["spec"]["podSelector"]


def scaled(cluster: Cluster) -> Iterator[str]:
    """Autoscalers without a target, or whose number of replicas is set twice."""
    for document in cluster.of("HorizontalPodAutoscaler", "ScaledObject"):
        target = document["spec"]["scaleTargetRef"]
        if target["name"] not in cluster.names(target["kind"]):
            yield f"{document['kind']} scales {target['name']}, which is not there"
        elif "replicas" in cluster.one(target["kind"], target["name"])["spec"]:
            yield f"replicas of {target['name']} are set in addition to its {document['kind']}"


def volumes(cluster: Cluster) -> Iterator[str]:
    """Volumes of what is not there, mounts without a volume, volumes without a mount."""
    for pod in cluster.pods:
        claimed = {t["metadata"]["name"] for t in pod.owner["spec"].get("volumeClaimTemplates", [])}
        names = {volume["name"] for volume in pod.spec.get("volumes", [])} | claimed
        mounted = {m["name"] for c in pod.containers for m in c.get("volumeMounts", [])}
        if names != mounted:
            yield f"{pod.name}: volumes {sorted(names)}, mounted {sorted(mounted)}"
        for volume in pod.spec.get("volumes", []):
            yield from _volume(cluster, pod, volume)


def _volume(cluster: Cluster, pod: Pod, volume: Document) -> Iterator[str]:
    claim = volume.get("persistentVolumeClaim", {}).get("claimName")
    if claim and claim not in cluster.names("PersistentVolumeClaim"):
        yield f"{pod.name}: no PersistentVolumeClaim {claim}"


def accounts(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        name = pod.spec.get("serviceAccountName")
        if name not in cluster.names("ServiceAccount"):
            yield f"{pod.name}: no ServiceAccount {name}"


_URL = re.compile(r"(?:https?|redis)://([a-z0-9.-]+):(\d+)")


def ports(cluster: Cluster) -> Iterator[str]:
    """Ports without a listener."""
    for service in cluster.of("Service"):
        chosen = {"matchLabels": service["spec"]["selector"]}
        for pod in (pod for pod in cluster.pods if pod.matches(chosen)):
            for port in service["spec"]["ports"]:
                if port["targetPort"] not in pod.ports:
                    yield f"Service/{service['metadata']['name']}: {pod.name} has no such port"
    for pod in cluster.pods:
        for container in pod.containers:
            yield from _probed(pod, container)


def _probed(pod: Pod, container: Document) -> Iterator[str]:
    named = {port["name"] for port in container.get("ports", [])}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container.get(kind, {}).get("httpGet")
        if get and get["port"] not in named:
            yield f"{pod.name}: {kind} asks at {get['port']!r}, which {container['name']} has not"


def addresses(cluster: Cluster) -> Iterator[str]:
    """URLs in environments and arguments that lead to no Service's port."""
    for pod in cluster.pods:
        for container in pod.containers:
            texts = [*env_of(container).values(), *container.get("args", [])]
            for host, port in _URL.findall(" ".join(texts)):
                if reason := _address(cluster, host, int(port)):
                    yield f"{pod.name}: {host}:{port}: {reason}"
    for document in cluster.of("ScaledObject"):
        for trigger in document["spec"]["triggers"]:
            host, _, port = trigger["metadata"]["address"].partition(":")
            if reason := _address(cluster, host, int(port)):
                yield f"ScaledObject: {host}:{port}: {reason}"


def _address(cluster: Cluster, host: str, port: int) -> str | None:
    """Reason why nothing listens; ``host`` is SERVICE, POD.SERVICE, or SERVICE.NAMESPACE.svc…"""
    first, _, rest = host.partition(".")
    name = first if not rest or ".svc" in rest else rest
    if name not in cluster.names("Service"):
        return "no such Service"
    service = cluster.one("Service", name)
    if ".svc" in rest and rest.partition(".")[0] != service["metadata"]["namespace"]:
        return "another namespace"
    if port not in {entry["port"] for entry in service["spec"]["ports"]}:
        return "no such port"
    return None


Check = Callable[[Cluster], Iterator[str]]
CHECKS: list[Check] = [
    selectors,
    scaled,
    volumes,
    accounts,
    ports,
    addresses,
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
