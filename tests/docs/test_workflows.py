"""GitHub workflows: existing commands, minimal permissions, pushes for tags only."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.markdown import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_PROVIDED_BY_THE_RUNNER = {"sudo", "docker"}
_TARGET = re.compile(r"^([a-z0-9-]+):", re.MULTILINE)
_PINNED = re.compile(r"[\w-]+/[\w-]+@v\d+")


def load(name: str) -> dict[Any, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text()))


def triggers(workflow: Mapping[Any, Any]) -> dict[str, Any]:
    return dict(workflow[True])  # `on` is a boolean of YAML 1.1


def steps(workflow: Mapping[Any, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def missing_commands(command: str) -> list[str]:
    """Make targets and scripts that a step calls and that do not exist."""
    targets = _TARGET.findall((ROOT / "Makefile").read_text())
    found = []
    for line in command.splitlines():
        first, *rest = shlex.split(line, comments=True) or [""]
        if first == "make":
            found += [word for word in rest if "=" not in word and word not in targets]
        elif (
            first and first not in _PROVIDED_BY_THE_RUNNER and not os.access(ROOT / first, os.X_OK)
        ):
            found.append(first)
    return found


def built() -> dict[str, tuple[str, str | None]]:
    """Dockerfile and target of each image that images.yml builds."""
    jobs = load("images.yml")["jobs"]
    matrix = jobs["image"]["strategy"]["matrix"]["include"]
    images = {one["image"]: (one["file"], one.get("target")) for one in matrix}
    (gpu,) = (s["with"] for s in jobs["generator"]["steps"] if "build-push" in s.get("uses", ""))
    return images | {"generator": (gpu["file"], gpu.get("target"))}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_minimal_permissions_and_a_time_limit(path: Path):
    workflow = load(path.name)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 45
    for step in steps(workflow):
        assert missing_commands(step.get("run", "")) == []
        assert "uses" not in step or _PINNED.fullmatch(step["uses"])


def test_ci_runs_the_script_of_contributors():
    assert [step["run"] for step in steps(load("ci.yml")) if "run" in step] == [".ci/run"]
    assert set(triggers(load("ci.yml"))) == {"push", "pull_request"}


def test_the_images_of_the_compose_file_and_the_sandbox():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    wanted = {
        name: (service["build"]["dockerfile"], service["build"].get("target"))
        for name, service in services.items()
        if "build" in service
    }
    wanted["sandbox"] = ("services/sandbox/Dockerfile", None)
    wanted["generator-cpu"] = (wanted["generator-cpu"][0], "replay")
    assert built() == wanted
    assert all((ROOT / file).is_file() for file, _ in built().values())


def test_only_tags_push():
    workflow = load("images.yml")
    assert list(triggers(workflow)["push"]) == ["tags"]
    assert workflow["jobs"]["generator"]["if"] == "github.event_name == 'push'"
    for step in workflow["jobs"]["image"]["steps"]:
        if "build-push" in step["uses"]:
            assert step["with"]["push"] == "${{ github.event_name == 'push' }}"
        if "login" in step["uses"]:
            assert step["if"] == "github.event_name == 'push'"


def test_missing_commands_are_found():
    assert missing_commands("make lint tidy N=3\n.ci/run\n.ci/walk\ndocker ps") == [
        "tidy",
        ".ci/walk",
    ]
