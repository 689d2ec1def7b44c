"""Findings of `make k8s-validate`. Needs the environment that the target creates."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.k8s.cluster import Cluster
from tools.k8s_validate import ROOT

PYTHON = Path(os.environ.get("PLUMBLINE_K8S_PYTHON") or ROOT / ".venv-k8s" / "bin" / "python")
SCHEMAS = Path(os.environ.get("PLUMBLINE_K8S_SCHEMAS") or ROOT.parent / "shared" / "k8s-schemas")

with_tools = pytest.mark.skipif(not PYTHON.exists(), reason="`make k8s-validate` was not run here")

PROGRAM = """
import sys, yaml
from pathlib import Path
from tools.k8s_validate import check_policy, check_schemas
documents = list(yaml.safe_load_all(sys.stdin))
what, folder = sys.argv[1:]
match what:
    case "builtin": found = check_schemas("t", documents, None)
    case "custom": found = check_schemas("t", documents, Path(folder))
    case "policy": found = check_policy({"t": documents})
print(*found, sep="\\n")
"""


def findings(cluster: Cluster, what: str) -> list[str]:
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM, what, str(SCHEMAS)],
        cwd=ROOT,
        input=yaml.safe_dump_all(cluster.documents),
        text=True,
        capture_output=True,
        check=True,
    )
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


@with_tools
def test_kubernetes_schemas_find_an_unknown_field(everything: Cluster):
    everything.documents[:] = everything.of("Deployment")
    assert findings(everything, "builtin") == []
    everything.one("Deployment", "judge")["spec"]["template"]["spec"]["terminationGrace"] = 1
    everything.one("Deployment", "aggregator")["spec"]["replicas"] = "one"
    lines = findings(everything, "builtin")
    assert sum("Deployment/judge" in line and "terminationGrace" in line for line in lines) == 2
    assert sum("Deployment/aggregator" in line for line in lines) == 2


@with_tools
def test_policy_finds_what_no_exception_covers(everything: Cluster):
    everything.documents[:] = [
        *everything.of("NetworkPolicy"),
        everything.one("Deployment", "judge"),
        everything.one("StatefulSet", "sandbox"),
    ]
    assert findings(everything, "policy") == []
    everything.pod("judge").spec["containers"][0]["securityContext"]["privileged"] = True
    everything.pod("judge").spec["securityContext"].pop("runAsUser")
    lines = findings(everything, "policy")
    assert any("CKV_K8S_16" in line for line in lines)
    assert all("Deployment.judge" in line for line in lines)


@pytest.mark.nightly
@with_tools
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")
def test_the_whole_program_finds_nothing():
    done = subprocess.run(
        [PYTHON, "-m", "tools.k8s_validate"], cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 findings" in done.stdout
