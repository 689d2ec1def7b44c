"""The pages' commands as typed: afterwards everything exists that the manifests mount."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import sections
from tests.k8s import references
from tests.k8s.cluster import Cluster
from tools.k8s_validate import ROOT

STAND_INS = ("kubectl", "docker", "kind", "k3d", "minikube")
# As README.md had them: the Secret lacks keys, the Job is part of the stack, nothing is built.
INCOMPLETE = """
    kubectl -n plumbline create secret generic plumbline-redis --from-literal=password=x
    kubectl apply -k k8s/overlays/minimal
"""

Run = Callable[[str], tuple[Cluster, references.Existing]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a page's commands in order; returns the stack, and what exists beside it."""
    real = shutil.which("kubectl")
    if real is None:
        pytest.skip("no kubectl on the PATH")
    state = tmp_path / "state.json"
    empty = {"documents": [], "built": [], "loaded": [], "jobs": [], "secret": {}, "configmap": {}}
    state.write_text(json.dumps(empty))
    stand_in = (ROOT / "tests" / "k8s" / "stand_in.py").read_text().partition("\n")[2]
    for name in STAND_INS:
        (tmp_path / name).write_text(f"#!{sys.executable} -I\n{stand_in}")
        (tmp_path / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "STAND_IN_STATE": str(state),
        "KUBECTL": real,
        **dict.fromkeys(("HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY"), "x"),
    }

    def commands(page: str) -> tuple[Cluster, references.Existing]:
        for block in blocks(page):
            done = subprocess.run(
                ["bash", "-ec", block], cwd=ROOT, env=environment, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        found = json.loads(state.read_text())
        return Cluster(found["documents"]), references.Existing(
            {name: set(keys) for name, keys in found["secret"].items()},
            {*found["configmap"], "kube-root-ca.crt"},
            {image.rpartition("/")[2] for image in found["loaded"]},
        )

    return commands


def blocks(page: str) -> Iterator[str]:
    for section in sections(page):
        for code in section.code:
            block = re.sub(r"```yaml.*?```", "", code, flags=re.DOTALL)
            named = re.search(r"kubectl|k8s/|plumbline/|make images", block)
            if named and "k8s-validate" not in block:
                yield block


def test_everything_that_the_stack_mounts_exists(run: Run):
    page = (ROOT / "README.md").read_text()
    stack, existing = run(page)
    assert stack.of("CronJob")
    assert list(references.missing(stack, existing)) == []
    assert list(blocks((ROOT / "README.zh-CN.md").read_text())) == list(blocks(page))


def test_the_page_of_kubernetes_makes_what_all_overlays_and_components_need(
    run: Run, clusters: dict[str, Cluster]
):
    _, existing = run((ROOT / "k8s" / "README.md").read_text())
    for name, cluster in clusters.items():
        assert list(references.missing(cluster, existing)) == [], name


def test_missing_keys_and_images_are_found(run: Run):
    stack, existing = run(INCOMPLETE)
    missing = "\n".join(references.missing(stack, existing))
    for part in ("no key judge of the Secret plumbline-redis", "no image plumbline/judge:0.1.0"):
        assert part in missing
