"""A Docker engine, images of the real Dockerfiles, and the stack."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.stack import ROOT, Stack, compose_command, until
from tests.compose.stack import settings as test_settings

IMAGES = ("sandbox", "judge", "aggregator", "runner", "reward", "generator")


@pytest.fixture(scope="session")
def engine() -> None:
    try:
        answers = subprocess.run(["docker", "info"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no docker; `make test-containers` installs and starts an engine where it can")
    if answers.returncode != 0:
        pytest.skip("no Docker engine answers; `make test-containers` starts one as root on Debian")
    if compose_command() is None:
        pytest.skip("neither `docker compose` nor `docker-compose` is there")


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return test_settings(tmp_path_factory.mktemp("no-data"))


@pytest.fixture(scope="session")
def step() -> "Step":
    return Step()


class Step:
    """Says how long a step took, for the README."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def done(self, what: str) -> None:
        now = time.monotonic()
        print(f"[compose] {what}: {now - self._began:.0f} s", file=sys.__stderr__, flush=True)
        self._began = now


@pytest.fixture(scope="session")
def embedded(
    engine: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["subprocess.Popen[str]"]:
    """The demo without containers, beside the building of images; ``args[-1]`` is its output."""
    output = tmp_path_factory.mktemp("embedded") / "demo"
    command = [sys.executable, "-m", "services.cli", "run", "--config", "configs/demo.yaml"]
    process = subprocess.Popen(
        [*command, "--embedded", "--output", str(output)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


@pytest.fixture(scope="session")
def bases(engine: None, tmp_path_factory: pytest.TempPathFactory, step: Step) -> None:
    """The images that are not ours."""
    _script("bases.sh", str(tmp_path_factory.mktemp("bases")))
    step.done("base images and sandbox")


@pytest.fixture(scope="session")
def images(
    embedded: "subprocess.Popen[str]",
    bases: None,
    settings: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    step: Step,
) -> None:
    """The images of the stack, built as ``make images`` does."""
    builder = Stack(tmp_path_factory.mktemp("images"), settings)
    for image in IMAGES:
        builder.do("--profile", "runner", "--profile", "reward", "build", image)
        step.done(f"image {image}")


def _script(name: str, *arguments: str) -> None:
    made = subprocess.run(
        [f"tests/compose/offline/{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.fixture(scope="session")
def stack(
    images: None, settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory, step: Step
) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("stack"), settings)
    stack.do("down", "--volumes", "--remove-orphans", "--timeout", "5")
    try:
        stack.do("up", "-d", "--scale", "judge=3")
        step.done("up")
        until("every service healthy", stack.healthy)
        step.done("healthy")
        yield stack
    finally:
        step.done("tests")
        stack.remove()
        step.done("down")


@pytest.fixture(scope="session")
def expected(embedded: "subprocess.Popen[str]") -> Path:
    """The folder of the embedded demo."""
    printed, _ = embedded.communicate(timeout=300)
    assert embedded.returncode == 0, printed
    return Path(str(embedded.args[-1]))  # type: ignore[index]
