"""The demo end to end, as in `make demo`."""

import json
import re
import shlex
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from shared.harness.languages import PROGRAMS
from tests.cli import commands
from tests.e2e import plumb
from tests.judge.language_programs import is_installed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("made") / "demo"
    done = plumb.plumb(plumb.demo_run(output))
    assert done.returncode == 0, done.stderr
    assert "accepted@1" in done.stdout
    return output


def test_every_completion_gets_the_status_written_beside_it(demo: Path) -> None:
    recorded = plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
    expected = {(r["dataset"], r["problem_id"]): r["expected_status"] for r in recorded}
    statuses = {
        (v["dataset"], v["problem_id"]): v["final_status"]
        for v in plumb.read_jsonl(demo / "verdicts.jsonl")
    }
    assert statuses == expected
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


@pytest.mark.parametrize("language", [name for name in PROGRAMS if name != "python"])
@pytest.mark.nightly
def test_python_and_another_language_in_one_run(tmp_path: Path, language: str) -> None:
    if not is_installed(language):
        pytest.skip(f"this machine has no {language}")
    recorded = plumb.read_jsonl(plumb.DEMO / f"completions_{language}.jsonl")
    python = plumb.read_jsonl(plumb.DEMO / "completions.jsonl")
    recorded += [answer for answer in python if answer["dataset"] == "codecontests_test"][:4]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(answer) + "\n" for answer in recorded))
    judge = ["judge", "--data", str(plumb.DEMO / "data"), "--completions", str(answers)]
    own = [f"judge.datasets={{codecontests_valid: {{language: {language}}}}}", "sandbox.timeout=2"]
    output = str(tmp_path / "out")
    done = plumb.plumb(plumb.command(*judge, "--output", output, "--embedded", *own))
    assert done.returncode == 0, done.stderr
    verdicts = plumb.read_jsonl(tmp_path / "out" / "verdicts.jsonl")
    statuses = {(v["dataset"], v["problem_id"]): v["final_status"] for v in verdicts}
    assert statuses == {(r["dataset"], r["problem_id"]): r["expected_status"] for r in recorded}


@pytest.mark.nightly
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


# docs/notebook.md, over the demo and a second run

_BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def notebook(name: str = "notebook.md") -> list[tuple[str, str]]:
    """The blocks of a page with their language."""
    page = plumb.REPOSITORY / "docs" / name
    return [(block[1], block[2]) for block in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def outputs(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``outputs`` that the page's commands make, and verl's table of the second run."""
    folder = tmp_path_factory.mktemp("notebook") / "outputs"
    folder.mkdir()
    shutil.copytree(demo, folder / "demo", ignore=shutil.ignore_patterns(".*"))
    commands = next(text for kind, text in notebook() if kind == "sh").splitlines()
    assert commands[0] == "make demo"
    arguments = shlex.split(commands[1])
    place = arguments.index("--output") + 1
    arguments[place] = str(folder.parent / arguments[place])
    table = f"data.output_path={folder.parent}/verl/responses.parquet"
    done = plumb.plumb([*plumb.command(*arguments[1:]), table])
    assert done.returncode == 0, done.stderr
    assert "58 completions of 58 problems in" in done.stdout
    return folder


def test_the_notebook_prints_what_the_page_says(
    outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(outputs.parent)
    names: dict[str, object] = {}
    printed: list[str] = []
    said = [text for kind, text in notebook() if kind == "text"]
    with pd.option_context("display.width", 120, "display.max_columns", 20):
        for text in (text for kind, text in notebook() if kind == "python"):
            with redirect_stdout(StringIO()) as output:
                exec(compile(text, "docs/notebook.md", "exec"), names)
            printed.append(output.getvalue())
    assert [_stripped(text) for text in printed] == said


def test_reading_a_run_prints_what_the_page_says(outputs: Path) -> None:
    for name in ("configs", "demo"):
        (outputs.parent / name).symlink_to(plumb.REPOSITORY / name)
    (making, *blocks) = notebook("reading-a-run.md")
    assert making == notebook()[0]  # the fixture's commands
    assert [kind for kind, _ in blocks] == ["sh", "text"] * (len(blocks) // 2)
    for (_, command), (_, said) in zip(blocks[::2], blocks[1::2], strict=True):
        done = commands.plumb(*shlex.split(command)[1:], folder=outputs.parent)
        printed = _lines((done.stdout + done.stderr).strip())
        # A line that is only an ellipsis stands for any lines, one within a line for any text.
        pattern = "".join(
            "(?:.*\\n)*" if line == "…\n" else re.escape(line).replace("…", ".*")
            for line in _lines(said)
        )
        assert re.fullmatch(pattern, "".join(printed)), (command, printed)


def _lines(text: str) -> list[str]:
    """Lines with one blank in place of several."""
    return [" ".join(line.split()) + "\n" for line in text.splitlines()]


def _stripped(text: str) -> str:
    """Without the blanks at the ends of lines, which no editor keeps."""
    return re.sub(r" +$", "", text, flags=re.MULTILINE)
