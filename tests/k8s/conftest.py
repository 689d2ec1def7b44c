"""Rendered overlays, and the base with each component."""

import copy
import shutil
from collections.abc import Callable

import pytest

from tests.k8s.cluster import Cluster
from tools.k8s_validate import render, targets

TARGETS = {target.name: target for target in targets()}


@pytest.fixture(scope="session")
def rendered() -> Callable[[str], Cluster]:
    """By name of the target; each call gives documents of its own, to be changed at will."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on the PATH")
    made: dict[str, Cluster] = {}

    def get(name: str) -> Cluster:
        if name not in made:
            made[name] = Cluster(render(TARGETS[name]))
        return Cluster(copy.deepcopy(made[name].documents))

    return get


@pytest.fixture(scope="session")
def clusters(rendered: Callable[[str], Cluster]) -> dict[str, Cluster]:
    """All targets, which no test changes."""
    return {name: rendered(name) for name in TARGETS}


@pytest.fixture
def minimal(rendered: Callable[[str], Cluster]) -> Cluster:
    return rendered("minimal")


@pytest.fixture
def everything(rendered: Callable[[str], Cluster]) -> Cluster:
    """The overlay for several nodes, with all components that go with it."""
    return rendered("everything")
