"""Properties of the built images: user, size, content."""

import json
from typing import Any

import pytest

from tests.compose.stack import docker

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900), pytest.mark.usefixtures("images")]
MB = 1000 * 1000
# Of the runner's, pandas, numpy and scipy are 190 MB, of the aggregator's wandb with its own 80;
# the reward service calls sandboxes as judges do.
MOST = {"judge": 250, "runner": 480, "aggregator": 350, "reward": 260}


def inspect(image: str) -> dict[str, Any]:
    return dict(json.loads(docker("image", "inspect", f"localhost/plumbline/{image}:0.1.0"))[0])


@pytest.mark.parametrize("image", MOST)
def test_small(image: str) -> None:
    assert inspect(image)["Size"] < MOST[image] * MB


@pytest.mark.parametrize(
    "image", ["judge", "runner", "aggregator", "reward", "generator-cpu", "sandbox"]
)
def test_unprivileged_labelled_and_compilers_only_where_answers_need_them(image: str) -> None:
    config = inspect(image)["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"][:2] == ["tini", "--"]
    assert config["Healthcheck"]
    label = "org.opencontainers.image"
    for name in ("title", "description", "version", "licenses"):
        assert config["Labels"][f"{label}.{name}"]
    tools = "for tool in gcc cc g++ make ld; do command -v $tool; done; id -u"
    name = f"localhost/plumbline/{image}:0.1.0"
    *compilers, user = docker("run", "--rm", "--entrypoint", "sh", name, "-c", tools).split()
    assert user == "10001"
    # The sandbox's image has the compiler of answers in C++.
    assert ("/usr/bin/g++" in compilers) if image == "sandbox" else (compilers == [])


def test_the_aggregator_has_wandb() -> None:
    program = "import wandb; wandb.init(mode='offline', dir='/tmp').finish()"
    arguments = ("--read-only", "--tmpfs", "/tmp", "--network", "none", "--entrypoint", "python")
    docker("run", "--rm", *arguments, "localhost/plumbline/aggregator:0.1.0", "-c", program)
