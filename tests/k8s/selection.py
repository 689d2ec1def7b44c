"""Targets of selectors and scalers."""

from collections.abc import Iterator

from tests.k8s.cluster import COMPONENT, Cluster, Document, selects

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
