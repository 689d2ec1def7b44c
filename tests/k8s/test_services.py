"""Probes use existing addresses, variables are known settings, ports agree."""

from collections.abc import Callable, Iterator

import pytest

from tests.k8s import services
from tests.k8s.cluster import Cluster, defects, env_of

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def image_of(container: dict) -> str:
    return container["image"].partition(":")[0]


def unserved(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        for container in pod.containers:
            for probe in PROBES:
                path = container.get(probe, {}).get("httpGet", {}).get("path")
                if path and path not in ("/healthz", "/readyz"):
                    yield f"{pod.name}: {probe} asks for {path}"


def unknown_variables(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        for container in pod.containers:
            variables = services.known_variables(image_of(container))
            for name in env_of(container).keys() - variables:
                yield f"{pod.name}: {container['name']} knows no {name}"


def refused_values(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        for container in pod.containers:
            for error in services.load(image_of(container), env_of(container)):
                yield f"{pod.name}: {container['name']}: {error}"


def other_ports(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        for container in pod.containers:
            port = env_of(container).get("PORT")
            if port and int(port) not in {p["containerPort"] for p in container["ports"]}:
                yield f"{pod.name}: listens on {port}"
            if port and env_of(container).get("HOST") != "0.0.0.0":
                yield f"{pod.name}: listens on loopback"


def unprobed(cluster: Cluster) -> Iterator[str]:
    """Servers without one of the three probes (the page's proxy starts at once)."""
    for pod in cluster.pods:
        if pod.owner["kind"] == "CronJob":
            continue
        for container in pod.spec["containers"]:
            wanted = PROBES[1:] if pod.component == "page" else PROBES
            for probe in wanted:
                if probe not in container:
                    yield f"{pod.name}: no {probe}"


CHECKS = [unserved, unknown_variables, refused_values, other_ports, unprobed]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_services_and_manifests_agree(clusters: dict[str, Cluster], check: Callable):
    assert defects(clusters, check) == {}
