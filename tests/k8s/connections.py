"""Listening ports, and addresses that resolve to them."""

import re
from collections.abc import Iterator

from tests.k8s.cluster import Cluster, Document, Pod, env_of, selects

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
    yield from _monitored(cluster)
    yield from _let_through(cluster)
    yield from _ingress(cluster)


def _probed(pod: Pod, container: Document) -> Iterator[str]:
    named = {port["name"] for port in container.get("ports", [])}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container.get(kind, {}).get("httpGet")
        if get and get["port"] not in named:
            yield f"{pod.name}: {kind} asks at {get['port']!r}, which {container['name']} has not"


def _monitored(cluster: Cluster) -> Iterator[str]:
    for monitor in cluster.of("ServiceMonitor"):
        chosen = monitor["spec"]["selector"]
        found = [s for s in cluster.of("Service") if selects(chosen, s["metadata"]["labels"])]
        named = {port["name"] for service in found for port in service["spec"]["ports"]}
        asked = {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
        if found and not asked <= named:
            yield f"ServiceMonitor/{monitor['metadata']['name']}: no such port"
    for monitor in cluster.of("PodMonitor"):
        named = {n for p in cluster.pods if p.matches(monitor["spec"]["selector"]) for n in p.ports}
        if any(e["port"] not in named for e in monitor["spec"]["podMetricsEndpoints"]):
            yield f"PodMonitor/{monitor['metadata']['name']}: no such port"


def _let_through(cluster: Cluster) -> Iterator[str]:
    for policy in cluster.of("NetworkPolicy"):
        chosen = [p for p in cluster.pods if p.matches(policy["spec"]["podSelector"])]
        for rule in policy["spec"].get("ingress", []):
            for port in rule.get("ports", []):
                for pod in chosen:
                    if port["port"] not in pod.ports.values():
                        yield f"NetworkPolicy/{policy['metadata']['name']}: {port['port']} is shut"


def _ingress(cluster: Cluster) -> Iterator[str]:
    for document in cluster.of("Ingress"):
        for rule in document["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                to = path["backend"]["service"]
                if to["name"] not in cluster.names("Service"):
                    yield f"Ingress: no Service {to['name']}"
                    continue
                there = cluster.one("Service", to["name"])["spec"]["ports"]
                if to["port"]["name"] not in {port["name"] for port in there}:
                    yield f"Ingress: Service {to['name']} has no port {to['port']['name']}"


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
    return None if name == first else _member(cluster, service, first)


def _member(cluster: Cluster, service: Document, pod: str) -> str | None:
    owner, _, number = pod.rpartition("-")
    if service["spec"].get("clusterIP") != "None":
        return "only a headless Service has names for pods"
    if owner not in cluster.names("StatefulSet"):
        return "no such StatefulSet"
    members = cluster.one("StatefulSet", owner)["spec"]
    there = members["serviceName"] == service["metadata"]["name"]
    return None if there and int(number) < members["replicas"] else "no such pod"
