"""Untrusted runs, and `plumb doctor`, with a sandbox that has a fault."""

import json
from pathlib import Path

import pytest

from services.data.records import write_dataset
from tests.cli.commands import plumb
from tests.judge import faulty_sandbox as faults
from tests.judge.faulty_sandbox import faulty_in_thread
from tests.shared import baselines
from tests.shared.finished_runs import write_run
from tests.shared.ledgers import problem


@pytest.mark.e2e
def test_a_run_with_a_faulty_sandbox_ends_untrusted(shared_sandbox: str, tmp_path: Path) -> None:
    write_dataset(str(tmp_path / "d1.parquet"), [problem("p1")])
    answer = {"problem_id": "p1", "completion": "print(1)"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    inputs = ("--data", "d1.parquet", "--completions", "answers.jsonl", "--output", "out")
    with faulty_in_thread(shared_sandbox, faults.NO_MEMORY_LIMIT) as url:
        done = plumb("judge", *inputs, "--embedded", folder=tmp_path, SANDBOX_URLS=url)
        # Also of a run that stopped early, the repeated command does not succeed.
        record = tmp_path / "out" / "run.json"
        stopped = {"outcome": "go", "rules": [], "policy": "", "baseline": "", "problems": 1}
        changed = json.loads(record.read_text()) | {"stopped": {**stopped, "planned": 2}}
        record.write_text(json.dumps(changed))
        again = plumb("judge", *inputs, "--embedded", folder=tmp_path, SANDBOX_URLS=url)
    assert done.code == again.code == 3, done.stderr + again.stderr
    assert f"plumb: untrusted: sandbox {url}: memory limit not enforced: 1190 MiB" in done.stderr
    assert "3 of 4 canary programs got the expected verdict" in done.stdout
    assert json.loads((tmp_path / "out" / "run.json").read_text())["state"] == "untrusted"
    assert "untrusted: sandbox" in plumb("show", "out", folder=tmp_path).stdout
    assert "untrusted" in plumb("runs", ".", folder=tmp_path).stdout


@pytest.mark.e2e
def test_the_doctor_names_a_fault(shared_sandbox: str, tmp_path: Path) -> None:
    with faulty_in_thread(shared_sandbox, faults.cut_output(65536)) as url:
        done = plumb("doctor", "--embedded", folder=tmp_path, SANDBOX_URLS=url)
    assert done.code == 1, done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1
    assert f"sandbox {url}, batch python programs: output is cut or refused" in failed[0]


def test_an_untrusted_run_is_not_gated(tmp_path: Path) -> None:
    good = write_run(tmp_path / "a", {"d1": "++-"})
    finding = {"canary": "limits", "text": "memory limit not enforced: 2 GiB"}
    canaries = {"sandboxes": [baselines.sandbox(right=7, wrong=1, findings=[finding])]}
    bad = write_run(tmp_path / "b", {"d1": "+++"}, change={"canaries": canaries})
    policy = tmp_path / "policy.yaml"
    policy.write_text("default: {max_new_failures: 3}\n")
    done = plumb("gate", good, bad, "--policy", str(policy), folder=tmp_path)
    assert done.code == 4
    assert "inconclusive: trusted" in done.line
    assert plumb("gate", good, good, "--policy", str(policy), folder=tmp_path).code == 0
    compared = plumb("compare", good, bad, folder=tmp_path)
    assert "B: untrusted: sandbox http://s1: memory limit not enforced" in compared.stdout
