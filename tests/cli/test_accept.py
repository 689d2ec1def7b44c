"""`plumb accept` on folders of runs, and the warnings at a run's end."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from services.cli.accept import print_warnings
from shared.analysis.evidence import BASELINE_SETS
from shared.config import QUOTAS
from shared.finished_run import open_run
from shared.manifests import LOCK_NAME, hash_file
from tests.cli.commands import plumb
from tests.shared.baselines import figures, record, sandbox
from tests.shared.finished_runs import write_run

SETS = "data_manifests"


def letters(problems: int) -> str:
    """Answers of a plausible model: a tenth right, some time-outs, the rest wrong or empty."""
    right, late, empty = problems // 10, problems // 10, problems // 20
    return "+" * right + "t" * late + "e" * empty + "-" * (problems - right - late - empty)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a complete run of the four sets in `run`, and its manifests."""
    folder = tmp_path_factory.mktemp("baseline")
    wanted = record()
    change: dict[str, Any] = {
        "model": "Coder-7B",
        "canaries": {"sandboxes": [sandbox()]},
        "data_lock": {"path": f"{SETS}/{LOCK_NAME}"},
        "wandb": {"mode": "online", "url": "https://wandb.example/run"},
        "qa_logs": {name: log.model_dump(mode="json") for name, log in wanted.qa_logs.items()},
        "config.wandb.enabled": True,
    }
    answers = {name: letters(number) for name, number in BASELINE_SETS.items()}
    write_run(folder / "run", answers, summary=figures(), change=change)
    summary = {
        name: figures(accepted_at_1=0.8 if name == "humaneval" else 0.08) for name in answers
    }
    (folder / "run" / "phase0_summary.json").write_text(json.dumps(summary))
    (folder / "run" / "qa_logs").mkdir()
    for name, log in wanted.qa_logs.items():
        line = json.dumps({"prompt": "p", "response": "r"}) + "\n"
        (folder / "run" / log.file).write_text(line * sum(QUOTAS[name].values()))
    write_manifests(folder / SETS)
    return folder


def write_manifests(folder: Path) -> None:
    folder.mkdir()
    files = {"overlaps.jsonl": ""}
    for name, number in {**BASELINE_SETS, "codecontests_train": 3}.items():
        role = {"role": "train"} if name.endswith("train") else {}
        lines = [{"dataset": name, "problem_id": f"p{n:03}", **role} for n in range(number)]
        files[f"{name}.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines)
    for name, text in files.items():
        (folder / name).write_text(text)
    lock(folder)
    (folder / "audit_report.md").write_text("# Audit\n")


def lock(folder: Path) -> None:
    hashed = {p.name: hash_file(str(p)).model_dump() for p in sorted(folder.glob("*.jsonl"))}
    data = {f"{name.removesuffix('.jsonl')}.parquet": entry for name, entry in hashed.items()
            if name != "overlaps.jsonl"}  # fmt: skip
    document = {"canonical_version": "2", "files": {**hashed, **data}}
    (folder / LOCK_NAME).write_text(json.dumps(document))


@pytest.fixture
def copied(baseline: Path, tmp_path: Path) -> Path:
    shutil.copytree(baseline, tmp_path / "copy")
    return tmp_path / "copy"


def rows(stdout: str) -> dict[str, list[str]]:
    """The marks of each check in the table."""
    found: dict[str, list[str]] = {}
    for line in stdout.splitlines():
        mark, *rest = line.split()[:2] or [""]
        if mark in ("pass", "warning", "failure"):
            found.setdefault(rest[0], []).append(mark)
    return found


def change(folder: Path, **fields: Any) -> None:
    path = folder / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_complete_baseline_is_accepted(baseline):
    done = plumb("accept", "run", "--size", "7", "--json", "found.json", folder=baseline)
    assert (done.code, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines()[-1] == "accepted: all 20 checks pass"
    document = json.loads((baseline / "found.json").read_text())
    assert (document["outcome"], document["folder"]) == ("pass", "run")
    (model,) = [finding for finding in document["findings"] if finding["check"] == "model"]
    assert model == {
        "check": "model",
        "mark": "pass",
        "found": "Coder-7B, 7 B",
        "next_step": "",
        "dataset": "",
    }


def test_warnings_alone_are_exit_code_2(copied):
    change(copied, wandb={"mode": "offline", "sync": "wandb sync /x"})
    done = plumb("accept", "run", folder=copied)
    assert (done.code, done.line) == (4, "plumb: accepted with warnings: wandb (of 19 checks)")
    assert "→ wandb sync /x" in done.stdout
    assert plumb("accept", "run", "--without", "wandb", folder=copied).code == 0


def test_an_untrusted_run_with_files_that_were_changed(copied):
    change(copied, state="untrusted", canaries={"sandboxes": [
        sandbox(right=7, wrong=1, findings=[{"canary": "x", "text": "memory limit not enforced"}])
    ]})  # fmt: skip
    (copied / SETS / "overlaps.jsonl").write_text('{"a": "x/1", "b": "y/2", "reviewed": null}\n')
    (copied / "run" / "qa_logs" / "humaneval.jsonl").write_text('{"prompt": "p", "resp')
    done = plumb("accept", "run", folder=copied)
    assert done.code == 1
    assert "canaries, manifests, audit, qa-logs" in done.line
    assert "memory limit not enforced" in done.stdout
    assert "1 unreviewed overlaps between sets (x/1 and y/2, …)" in done.stdout
    assert "humaneval: 0 of 20" in done.stdout


def test_a_run_that_is_not_published(copied):
    change(copied, state="running", complete=False)
    for name in ("phase0_summary.json", "verdicts.jsonl", "generations.jsonl"):
        (copied / "run" / name).unlink()
    done = plumb("accept", "run", folder=copied)
    assert done.code == 1, done.stderr
    assert done.line.startswith("plumb: not accepted: state, verdicts, metrics")
    assert "verdicts.jsonl: no such file" in " ".join(done.stdout.split())


def test_an_incomplete_run_with_a_torn_line(copied):
    path = copied / "run" / "verdicts.jsonl"
    text = path.read_text()
    path.write_text(text[:-40])
    done = plumb("accept", "run", folder=copied)
    assert "mbpp_reg: 199 of 200 judged (0.5% api_error)" in done.stdout
    assert "torn last line" in done.stdout
    assert done.code == 4


def test_data_elsewhere_are_named(copied):
    (copied / SETS).rename(copied / "elsewhere")
    done = plumb("accept", "run", folder=copied)
    assert done.code == 4
    assert rows(done.stdout)["manifests"] == rows(done.stdout)["audit"] == ["warning"]
    assert "→ name the data files with --data" in done.stdout
    assert plumb("accept", "run", "--data", "elsewhere", folder=copied).code == 0


def test_warnings_at_the_end_of_a_run(tmp_path, capsys):
    def warned(folder: str) -> list[str]:
        print_warnings(open_run(folder))
        return capsys.readouterr().out.splitlines()

    few = write_run(tmp_path / "few", {"one": "----", "two": "t---"})
    assert warned(few) == []
    right = write_run(tmp_path / "right", {"one": "+" * 40})
    assert warned(right) == []
    lines = warned(write_run(tmp_path / "late", {"one": "t" * 40, "two": "t" * 30}))
    assert [line.split(":")[:2] for line in lines] == [
        ["warning", " accepted"],
        ["warning", " one-status"],
        ["warning", " time-outs"],
    ]
    assert lines[2] == (
        "warning: time-outs: one: 40 of 40 (100.0%), above 20%; two: 30 of 30 (100.0%), above "
        "20%; check the sandbox with plumb doctor; judge again with a longer sandbox.timeout"
    )
