"""`plumbline.load_run`: finished runs as pandas frames."""

import gzip
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pyarrow.parquet as pq
import pytest

import plumbline
from services.exports import ExportFormat
from shared.statuses import FinalStatus
from tests.docs.markdown import ROOT
from tests.exports.conftest import ODD, Exported, problems

CASE: dict[str, Any] = {
    "dataset": "humaneval",
    "problem_id": "HumanEval/0",
    "sample_index": 0,
    "case_index": 0,
    "status": "success",
    "input": "1\n",
    "expected": "1\n",
    "actual": "1\n",
    "stderr": None,
    "exit_code": 0,
    "duration": 0.25,
    "cpu_time": 0.125,
    "memory_mb": 8.5,
    "compile_duration": None,
    "compile_stderr": None,
}


@pytest.fixture
def folder(finished: Exported) -> Path:
    return finished.run


def second_run(folder: Path, to: Path, **fields: object) -> Path:
    """A copy under another id; ``fields`` replace those of ``run.json``."""
    shutil.copytree(folder, to)
    record = json.loads((to / "run.json").read_text())
    (to / "run.json").write_text(json.dumps(record | {"run": to.name} | fields))
    return to


def write_cases(folder: Path, *cases: dict[str, Any]) -> None:
    text = "".join(json.dumps(case) + "\n" for case in cases)
    (folder / "cases.jsonl.gz").write_bytes(gzip.compress(text.encode()))


def refusal(path: Any) -> str:
    with pytest.raises(plumbline.PlumblineError) as caught:
        _ = plumbline.load_run(path).samples
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_samples_are_those_of_the_export(finished: Exported, folder: Path) -> None:
    samples = plumbline.load_run(folder).samples
    exported = pq.read_table(finished.export(ExportFormat.HF_PARQUET) / "samples.parquet")
    assert list(samples) == exported.column_names
    plain = samples.astype(object).where(samples.notna(), None).to_dict("records")
    for row, values in zip(plain, exported.to_pylist(), strict=True):
        nested = ("case_codes", "error_breakdown", "first_failed_case")
        assert {n: v for n, v in row.items() if n not in nested} == {
            n: v for n, v in values.items() if n not in nested
        }
        assert list(row["case_codes"]) == values["case_codes"]
        assert row["error_breakdown"] == values["error_breakdown"]


def test_types_are_pandas_own(folder: Path) -> None:
    samples = plumbline.load_run(folder).samples
    kinds = samples.dtypes
    assert list(samples.final_status.cat.categories) == [status.value for status in FinalStatus]
    assert {str(kinds[name]) for name in ("dataset", "model", "method")} == {"category"}
    assert {str(kinds[name]) for name in ("output_tokens", "sample_index")} == {"Int64"}
    assert (str(kinds["accepted"]), str(kinds["pass_ratio"])) == ("boolean", "float64")
    lost = samples[samples.final_status == "api_error"].iloc[0]
    assert lost.accepted is pd.NA
    assert lost.output_tokens is pd.NA
    assert pd.isna(lost.pass_ratio)
    assert samples.loc[samples.problem_id == "cc 1", "completion"].item() == ODD


def test_problems_have_what_was_made_of_them(folder: Path) -> None:
    found = plumbline.load_run(folder).problems.set_index("problem_id")
    assert list(found.index) == [problem.problem_id for problem in problems()]
    counts = found[["samples", "judged", "accepted", "solved"]].astype(object)
    assert counts.loc["mbpp_11"].tolist() == [2, 2, 1, True]
    assert counts.loc["HumanEval/1"].tolist() == [1, 1, 0, False]
    assert counts.loc["cc 2"].tolist() == [1, 0, 0, pd.NA]
    assert (found.output_tokens["mbpp_11"], found.pass_ratio["mbpp_11"]) == (10, 0.5)
    assert found.output_tokens["cc 2"] is pd.NA
    assert (found.prompt["cc 1"], found.prompt_chars["cc 1"]) == ("Solve cc 1.", 11)
    assert (found.num_tests["cc 1"], found.entry_point["HumanEval/0"]) == (1, "f")


def test_figures_have_their_intervals(folder: Path) -> None:
    summary = json.loads((folder / "phase0_summary.json").read_text())
    bounds = {"accepted_at_1_bounds": [0.25, 0.75]}
    summary = {name: metrics | bounds for name, metrics in summary.items()}
    (folder / "phase0_summary.json").write_text(json.dumps(summary))
    figures = plumbline.load_run(folder).figures
    assert figures.dataset.unique().tolist() == list(summary)
    of_one = figures[figures.dataset == "mbpp_reg"].set_index("metric")
    assert list(of_one.index) == [
        *("total_problems", "accepted_at_1", "cost", "api_errors", "accepted_at_1_bounds")
    ]
    assert of_one.loc["accepted_at_1", ["value", "low", "high"]].tolist() == [0.5, 0.1, 0.9]
    assert of_one.loc["accepted_at_1_bounds", ["low", "high"]].tolist() == [0.25, 0.75]
    unknown = of_one.isna()
    assert unknown.loc["cost", ["value", "low", "high"]].all()
    assert unknown.loc["accepted_at_1_bounds", "value"]


def test_cases(folder: Path) -> None:
    run = plumbline.load_run(folder)
    assert run.cases.empty
    assert list(run.cases) == ["run", *CASE]
    failed = CASE | {"case_index": 1, "status": "timeout", "exit_code": None, "stderr": "ä"}
    write_cases(folder, CASE, failed, CASE | {"case_index": 2, "status": "not_run"})
    cases = plumbline.load_run(folder).cases
    assert cases.status.tolist() == ["success", "timeout", "not_run"]
    assert cases.dtypes.map(str).to_dict() == run.cases.dtypes.map(str).to_dict()
    assert cases.exit_code.tolist() == [0, pd.NA, 0]
    assert (cases.memory_mb[0], cases.stderr[1], cases.run[0]) == (8.5, "ä", "mine-0123")
    write_cases(folder, CASE | {"exit_code": "none"})
    broken = plumbline.load_run(folder)
    with pytest.raises(plumbline.PlumblineError, match=r"cases\.jsonl\.gz:1: not a caserecord"):
        _ = broken.cases


def test_many_runs(folder: Path, tmp_path: Path) -> None:
    runs = tmp_path / "outputs"
    second_run(folder, runs / "deep" / "second", name="other", model="org/other")
    second_run(folder, runs / "third", name="third")
    (runs / "torn").mkdir()
    (runs / "torn" / "run.json").write_text("{")
    with pytest.warns(UserWarning, match="left out: .*torn"):
        run = plumbline.load_run([runs, str(folder)])
    assert run.runs.run.tolist() == ["second", "third", "mine-0123"]
    assert run.runs.name.tolist() == ["other", "third", "mine"]
    assert run.runs.folder.tolist()[0] == str(runs / "deep" / "second")
    for frame, rows in ((run.samples, 18), (run.problems, 15), (run.figures, 36)):
        assert frame.run.value_counts().tolist() == [rows // 3] * 3
        assert frame.model.cat.categories.tolist() == ["org/other", "org/model-7B"]
    assert repr(run).startswith("<RunFrames of other, third, mine: ")


def test_any_file_system(folder: Path) -> None:
    with fsspec.open("memory://runs/one/run.json", "wb") as file:
        file.write((folder / "run.json").read_bytes())
    memory = fsspec.filesystem("memory")
    memory.put(str(folder) + "/", "/runs/one/", recursive=True)
    for path in ("memory://runs/one", "memory://runs"):
        assert len(plumbline.load_run(path).samples) == 6


def test_folders_that_hold_no_run(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "absent", tmp_path / "empty", folder / "run.json"):
        assert refusal(path).startswith(f"{path}: no finished run in this folder or below it")
    assert "no run is named" in refusal([])
    assert "hold the same run (mine-0123)" in refusal([folder, f"{folder}/"])
    (tmp_path / "empty" / "deep").mkdir()
    (tmp_path / "empty" / "deep" / "run.json").write_text("[]")
    assert "below it (" in refusal(tmp_path / "empty")
    (folder / "phase0_summary.json").unlink()
    assert "finish the run" in refusal(folder)


def test_a_torn_last_line_is_named(folder: Path) -> None:
    with (folder / "generations.jsonl").open("a") as file:
        file.write('{"dataset": "human')
    with pytest.warns(UserWarning, match=r"generations\.jsonl:6: torn last line"):
        assert len(plumbline.load_run(folder).samples) == 6
    with (folder / "verdicts.jsonl").open("a") as file:
        file.write("{}\n")
    assert "verdicts.jsonl:7: not a verdict" in refusal(folder)


def test_frames_are_read_when_they_are_used(folder: Path) -> None:
    run = plumbline.load_run(folder)
    (folder / "verdicts.jsonl").unlink()
    assert len(run.figures) == 12
    with pytest.raises(plumbline.PlumblineError, match="no such file"):
        _ = run.samples


def test_importing_it_does_not_import_pandas() -> None:
    program = "import plumbline, sys; print({'pandas', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_the_example_of_the_package_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a code block: indented, after a line that ends in two colons."""
    _, _, block = (plumbline.__doc__ or "").partition("::\n\n")
    assert all(line.startswith("    ") for line in block.rstrip().splitlines() if line)
    second_run(folder, folder.parent / "outputs" / "demo")
    monkeypatch.chdir(folder.parent)
    *setup, last = inspect.cleandoc(f"\n{block}").splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(setup), names)
    counts = eval(last, names)
    assert counts["humaneval", "success"] == 1
