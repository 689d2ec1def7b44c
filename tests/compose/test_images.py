"""Properties of the built images: user, size, content."""

import json
from typing import Any

import pytest

from tests.compose.stack import docker

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900), pytest.mark.usefixtures("images")]
MB = 1000 * 1000


def inspect(image: str) -> dict[str, Any]:
    return dict(json.loads(docker("image", "inspect", f"plumbline/{image}:0.1.0"))[0])


@pytest.mark.parametrize("image", ["judge", "runner", "aggregator"])
def test_small(image: str) -> None:
    assert inspect(image)["Size"] < 250 * MB


@pytest.mark.parametrize("image", ["judge", "runner", "aggregator", "generator-cpu", "sandbox"])
def test_unprivileged_labelled_without_compilers(image: str) -> None:
    config = inspect(image)["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"][:2] == ["tini", "--"]
    assert config["Healthcheck"]
    label = "org.opencontainers.image"
    for name in ("title", "description", "version", "licenses"):
        assert config["Labels"][f"{label}.{name}"]
    tools = "for tool in gcc cc g++ make ld; do command -v $tool; done; id -u"
    name = f"plumbline/{image}:0.1.0"
    assert docker("run", "--rm", "--entrypoint", "sh", name, "-c", tools) == "10001"
