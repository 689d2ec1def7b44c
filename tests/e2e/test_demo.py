"""The demo end to end, as in `make demo`."""

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("demo") / "out"
    done = plumb.plumb(plumb.demo_run(output))
    assert done.returncode == 0, done.stderr
    assert "accepted@1" in done.stdout
    return output


def test_every_completion_gets_the_status_written_beside_it(demo: Path) -> None:
    recorded = plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
    expected = {(r["dataset"], r["problem_id"]): r["expected_status"] for r in recorded}
    found = {
        (v["dataset"], v["problem_id"]): v["final_status"]
        for v in plumb.read_jsonl(demo / "verdicts.jsonl")
    }
    assert found == expected
    assert set(expected.values()) >= {
        "success",
        "wrong_answer",
        "runtime_error",
        "timeout",
        "syntax_error",
        "empty_output",
    }


def test_the_artifacts_are_whole_and_agree(demo: Path) -> None:
    run = json.loads((demo / "run.json").read_text())
    summary = json.loads((demo / "phase0_summary.json").read_text())
    verdicts = plumb.read_jsonl(demo / "verdicts.jsonl")
    generations = plumb.read_jsonl(demo / "generations.jsonl")
    assert run["complete"] is True
    assert run["samples"] == len(verdicts) == len(generations) == run["samples_judged"]
    assert run["completions_written"] == run["verdicts_written"] == run["samples"]
    assert run["duplicate_verdicts"] == 0
    assert run["generation_requests"] == run["samples"]
    assert list(summary) == [d["dataset"] for d in run["datasets"]]
    for dataset, metrics in summary.items():
        accepted = [v["accepted"] for v in verdicts if v["dataset"] == dataset]
        assert metrics["accepted_at_1"] == sum(accepted) / len(accepted)
        assert metrics["total_problems"] == len(accepted)
        assert metrics["avg_total_gen_tokens"] > 0
    assert not [path for path in demo.iterdir() if path.name.endswith(".tmp")]


def test_the_same_command_again_does_no_work_twice(demo: Path) -> None:
    before = plumb.numbers(demo)
    done = plumb.plumb(plumb.demo_run(demo))
    assert done.returncode == 0, done.stderr
    assert plumb.numbers(demo) == before
    run = json.loads((demo / "run.json").read_text())
    assert run["sessions"] == 2
    assert run["completions_written"] == run["verdicts_written"] == run["samples"]


def test_another_config_is_refused_in_the_same_folder(demo: Path) -> None:
    before = plumb.numbers(demo)
    done = plumb.plumb(plumb.demo_run(demo, "sandbox.timeout=3"))
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert plumb.numbers(demo) == before


@pytest.mark.skipif(shutil.which("g++") is None, reason="this machine has no g++")
def test_python_and_cpp_in_one_run(tmp_path: Path) -> None:
    recorded = plumb.read_jsonl(plumb.DEMO / "completions_cpp.jsonl")
    python = plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
    recorded += [one for one in python if one["dataset"] == "codecontests_test"][:4]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(one) + "\n" for one in recorded))
    judge = ["judge", "--data", str(plumb.DEMO / "data"), "--completions", str(answers)]
    own = ["judge.datasets={codecontests_valid: {language: cpp}}", "sandbox.timeout=2"]
    output = str(tmp_path / "out")
    done = plumb.plumb(plumb.command(*judge, "--output", output, "--embedded", *own))
    assert done.returncode == 0, done.stderr
    verdicts = plumb.read_jsonl(tmp_path / "out" / "verdicts.jsonl")
    found = {(v["dataset"], v["problem_id"]): v["final_status"] for v in verdicts}
    assert found == {(r["dataset"], r["problem_id"]): r["expected_status"] for r in recorded}


def test_every_reference_solution_is_accepted(tmp_path: Path) -> None:
    references = tmp_path / "references.jsonl"
    lines = []
    for path in sorted((plumb.DEMO / "problems").glob("*.jsonl")):
        for problem in plumb.read_jsonl(path):
            code = f"```python\n{problem['reference_solution']}\n```"
            lines.append({name: problem[name] for name in ("dataset", "problem_id")})
            lines[-1]["completion"] = code
    references.write_text("".join(json.dumps(line) + "\n" for line in lines))
    judge = ["judge", "--data", str(plumb.DEMO / "data"), "--completions", str(references)]
    done = plumb.plumb(plumb.command(*judge, "--output", str(tmp_path / "out"), "--embedded"))
    assert done.returncode == 0, done.stderr
    verdicts = plumb.read_jsonl(tmp_path / "out" / "verdicts.jsonl")
    assert len(verdicts) == len(lines)
    assert [v["problem_id"] for v in verdicts if v["final_status"] != "success"] == []
