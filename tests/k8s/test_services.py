"""Probes use existing addresses, variables are known settings, ports agree."""

from collections.abc import Callable, Iterator

import pytest

from tests.k8s import services
from tests.k8s.cluster import Cluster, defects, env_of
from tests.k8s.selection import OPTIONAL

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def image_of(container: dict) -> str:
    return container["image"].partition(":")[0]


def unserved(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        for container in pod.containers:
            for probe in PROBES:
                path = container.get(probe, {}).get("httpGet", {}).get("path")
                if path and path not in services.paths(image_of(container)):
                    yield f"{pod.name}: {probe} asks for {path}"


def unscraped(cluster: Cluster) -> Iterator[str]:
    for monitor in cluster.of("ServiceMonitor", "PodMonitor"):
        spec = monitor["spec"]
        for endpoint in spec.get("endpoints", spec.get("podMetricsEndpoints")):
            component = spec["selector"]["matchLabels"]["app.kubernetes.io/component"]
            if component in OPTIONAL - {pod.component for pod in cluster.pods}:
                continue
            container = cluster.pod(component).spec["containers"][0]
            if endpoint["path"] not in services.paths(image_of(container)):
                yield f"{monitor['kind']}: {component} has no {endpoint['path']}"


def unknown_variables(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        for container in pod.containers:
            known = services.known_variables(image_of(container))
            for name in env_of(container).keys() - known:
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


CHECKS = [unserved, unscraped, unknown_variables, refused_values, other_ports, unprobed]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_services_and_manifests_agree(clusters: dict[str, Cluster], check: Callable):
    assert defects(clusters, check) == {}


def _container(cluster: Cluster, component: str) -> dict:
    return cluster.pod(component).spec["containers"][0]


def other_path(c: Cluster) -> None:
    _container(c, "generator")["livenessProbe"]["httpGet"]["path"] = "/alive"


def judges_path(c: Cluster) -> None:
    _container(c, "judge")["readinessProbe"]["httpGet"]["path"] = "/ready"


def other_metrics(c: Cluster) -> None:
    c.one("PodMonitor", "judge")["spec"]["podMetricsEndpoints"][0]["path"] = "/stats"


def misspelt(c: Cluster) -> None:
    _container(c, "generator")["env"].append({"name": "PLUMBLINE_GENERATOR_BACKENT", "value": "x"})


def misspelt_for_the_command(c: Cluster) -> None:
    _container(c, "runner")["env"].append({"name": "PLUMBLINE_WAIT", "value": "1"})


def unusable_value(c: Cluster) -> None:
    env = _container(c, "generator")["env"]
    next(e for e in env if e["name"] == "PLUMBLINE_GENERATOR_BACKEND")["value"] = "vllm"


def other_port(c: Cluster) -> None:
    next(e for e in _container(c, "judge")["env"] if e["name"] == "PORT")["value"] = "8083"


def loopback(c: Cluster) -> None:
    next(e for e in _container(c, "judge")["env"] if e["name"] == "HOST")["value"] = "127.0.0.1"


def no_probe(c: Cluster) -> None:
    del _container(c, "redis")["startupProbe"]


DAMAGES: list[tuple[Callable, Callable]] = [
    (unserved, other_path),
    (unserved, judges_path),
    (unscraped, other_metrics),
    (unknown_variables, misspelt),
    (unknown_variables, misspelt_for_the_command),
    (refused_values, unusable_value),
    (other_ports, other_port),
    (other_ports, loopback),
    (unprobed, no_probe),
]


def test_disagreement_is_found(rendered: Callable[[str], Cluster]):
    missed = []
    for check, damage in DAMAGES:
        damaged = rendered("everything")
        damage(damaged)
        if not list(check(damaged)):
            missed.append(damage.__name__)
    assert missed == []
