"""GitHub workflows: pinned actions, least permissions, pushes for tags only."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.markdown import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def load(name: str) -> dict[Any, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text()))


def triggers(workflow: Mapping[Any, Any]) -> dict[str, Any]:
    return dict(workflow[True])  # `on` is a boolean of YAML 1.1


def steps(workflow: Mapping[Any, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def built(name: str) -> dict[str, tuple[str, str | None]]:
    """Dockerfile and target of each image that the job ``image`` of a workflow builds."""
    matrix = load(name)["jobs"]["image"]["strategy"]["matrix"]["include"]
    return {image["image"]: (image["file"], image.get("target")) for image in matrix}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_read_only_and_a_time_limit(path: Path):
    workflow = load(path.name)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= (350 if path.name == "nightly.yml" else 45)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_only_a_tag_may_write(path: Path):
    workflow = load(path.name)
    for job in workflow["jobs"].values():
        if "write" in job.get("permissions", {}).values():
            assert triggers(workflow) == {"push": {"tags": ["v*"]}}
            assert job["if"] == "startsWith(github.ref, 'refs/tags/v')"


def test_the_auditor_of_workflows_finds_nothing():
    auditor = Path(sys.executable).with_name("zizmor")
    command = [auditor, "--offline", "--no-progress", "--persona=auditor", *WORKFLOWS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ci_runs_the_script_of_contributors():
    assert [step["run"] for step in steps(load("ci.yml")) if "run" in step] == [".ci/run"]
    assert set(triggers(load("ci.yml"))) == {"push", "pull_request"}


def test_the_images_of_the_compose_file_and_the_sandbox():
    wanted = {"sandbox": ("services/sandbox/Dockerfile", None)}
    for name in ("docker-compose.yml", "docker-compose.gpu.yml"):
        for service in yaml.safe_load((ROOT / name).read_text())["services"].values():
            if "build" in service:
                image = re.sub(r"\$\{.*?\}/|:.*", "", service["image"])
                wanted[image] = (service["build"]["dockerfile"], service["build"].get("target"))
    wanted["generator"] = (wanted["generator"][0], None)  # the last stage
    wanted["generator-cpu"] = (wanted["generator-cpu"][0], "replay")
    assert built("release.yml") == wanted
    del wanted["generator"]  # vLLM's image is most of a machine's disk
    assert built("images.yml") == built("audit.yml") == wanted
    assert all((ROOT / file).is_file() for file, _ in built("release.yml").values())


def test_a_release_has_a_bill_of_materials_and_a_signed_provenance():
    job = load("release.yml")["jobs"]["image"]
    (push,) = (s["with"] for s in job["steps"] if "build-push" in s.get("uses", ""))
    (attest,) = (s["with"] for s in job["steps"] if "attest-build" in s.get("uses", ""))
    assert push["sbom"] is True
    assert push["provenance"] == "mode=max"
    assert "cache-from" not in push
    assert attest["subject-digest"] == "${{ steps.build.outputs.digest }}"
    assert attest["push-to-registry"] is True
    scopes = {"packages", "id-token", "attestations"}
    assert {scope for scope, may in job["permissions"].items() if may == "write"} == scopes
