"""Images are pinned, of this version, and the same as in docker-compose.yml."""

import re
import tomllib
from collections.abc import Iterator

import pytest
import yaml

from tests.k8s.cluster import Cluster, defects
from tools.k8s_validate import ROOT

COMPOSE = ROOT / "docker-compose.yml"
DIGEST = re.compile(r"[^@]+@sha256:[0-9a-f]{64}")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def images(cluster: Cluster) -> set[str]:
    return {container["image"] for pod in cluster.pods for container in pod.containers}


def composed() -> set[str]:
    """The images of the Compose files with the defaults of their variables."""
    files = (COMPOSE, COMPOSE.with_name("docker-compose.gpu.yml"))
    documents = [yaml.safe_load(file.read_text())["services"] for file in files]
    texts = [service["image"] for services in documents for service in services.values()]
    named = {re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text) for text in texts}
    return {name.removeprefix("localhost/") for name in named}


def unpinned(cluster: Cluster) -> Iterator[str]:
    """Our images without this version, others without a tag and a digest."""
    for image in images(cluster):
        name, _, tag = image.partition(":")
        ours = name.startswith("plumbline/")
        if tag == "latest" or not (tag == VERSION if ours else DIGEST.fullmatch(tag)):
            yield image


def test_every_image_has_a_version(clusters: dict[str, Cluster]):
    assert defects(clusters, unpinned) == {}


@pytest.mark.skipif(not COMPOSE.exists(), reason="there is no docker-compose.yml")
def test_images_are_those_of_the_compose_file(clusters: dict[str, Cluster]):
    theirs = composed()  # without the proxy that shows the page alone
    ours = {
        name: {image for image in images(cluster) if not image.startswith("nginxinc/")}
        for name, cluster in clusters.items()
    }
    assert {name: own - theirs for name, own in ours.items() if own - theirs} == {}
