"""`plumb show RUN --sample` and `--status`."""

import gzip
import re

import pytest
import typer
from typer.testing import CliRunner

from services.cli import finished
from shared.errors import ConfigError
from shared.outlines import ProblemOutline
from shared.schemas import CaseRecord, FailedCase, JudgedCode
from shared.statuses import ExtractionReason, FinalStatus
from tests.cli.commands import in_terminal
from tests.shared.finished_runs import write_run
from tests.shared.ledgers import generation, verdict

S = FinalStatus
CODE = "def f(x):\n\treturn x  # \x1b[2J\x1b]0;owned\x07\u202e"
SAMPLE = "one/p/2/0"


app = typer.Typer()
app.command()(finished.show)


def show(folder, *options):
    """The command in this process, which takes a tenth of the time of one of its own."""
    return CliRunner().invoke(app, [str(folder / "run"), *options])


def case(place, status=S.WRONG_ANSWER, **texts):
    known = {
        "input": "5\n",
        "expected": "1\n2\n3\n",
        "actual": "1\n4  \n3\n",
        "stderr": "\x1b[31mno",
    }
    return {"case_index": place, "status": status, **known, **texts}


@pytest.fixture
def run(tmp_path):
    """A run with a sample that fails three of four cases, all of them recorded, and two others."""
    folder = tmp_path / "run"
    write_run(folder, {"one": "+-"})
    completion = f"Here:\n```python\n{CODE}\n```\n"
    start = completion.index(CODE)
    code = JudgedCode.of(CODE, ExtractionReason.FENCED, start)
    made = [generation(completion=completion, finish_reason="stop", output_tokens=9)]
    made[0] = made[0].model_copy(update={"dataset": "one", "problem_id": "p/2"})
    others = [one.model_copy(update={"problem_id": name, "dataset": "two"})
              for name in ("p/2", "q") for one in made]  # fmt: skip
    judged = [
        verdict(made[0], S.WRONG_ANSWER, cases_passed=1, cases_total=4, code=code,
                first_failed_case=FailedCase(**case(1)), detail="bad\x1b[0m"),
        verdict(others[0], S.SUCCESS),
        verdict(others[1], S.API_ERROR, method="none", checker="none", detail="sandbox gone"),
    ]  # fmt: skip
    statuses = (S.SUCCESS, S.WRONG_ANSWER, S.TIMEOUT, S.RUNTIME_ERROR)
    cases = [CaseRecord(dataset="one", problem_id="p/2", sample_index=0, **case(place, status))
             for place, status in enumerate(statuses)]  # fmt: skip
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Do f.\x07"},
    ]
    outline = ProblemOutline(dataset="one", problem_id="p/2", prompt="Do f.", messages=messages,
                             difficulty="hard", tags=("dp",), num_tests=4)  # fmt: skip
    for name, records in (
        ("generations.jsonl", [*made, *others]),
        ("verdicts.jsonl", judged),
        ("problems.jsonl", [outline]),
    ):
        (folder / name).write_text("".join(f"{record.model_dump_json()}\n" for record in records))
    with gzip.open(folder / "cases.jsonl.gz", "wt") as file:
        file.writelines(f"{one.model_dump_json()}\n" for one in cases)
    return tmp_path


def test_a_sample_with_its_messages_code_and_first_failing_case(run):
    done = show(run, "--sample", SAMPLE)
    assert done.exit_code == 0, done.exception
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[1] == "one/p%2F2/0   wrong_answer"
    facts = dict(re.split(" {2,}", line, maxsplit=1) for line in lines[2:9])
    assert facts["cases passed"] == "1 of 4"
    assert facts["judged by"] == "compute_score, exact"
    assert facts["generation"] == "9 out, ended by stop"
    assert facts["problem"] == "hard, 4 tests, dp"
    assert lines[10:12] == ["sent as system", "Be brief."]
    assert "def f(x):\n    return x  # " in done.stdout  # the tab is blanks
    place = lines.index("case 2 of 4 (case_index 1): wrong_answer")
    assert lines[place + 1 : place + 3] == ["input", "5"]
    assert lines[place + 4 : place + 8] == ["  1", "- 2", "+ 4··", "  3"]
    assert lines[-1] == "2 more cases failed; --cases all prints every recorded case"
    assert set(done.stdout) & set("\x1b\x07\u202e") == set()
    assert done.stdout.count("\ufffd") == 7  # each control character is to be seen


def test_all_failing_cases(run):
    done = show(run, "--sample", "one/p/2", "--cases", "all")
    cases = re.findall(r"^case (\d) of 4 .*: (\w+)$", done.stdout, re.MULTILINE)
    assert cases == [("2", "wrong_answer"), ("3", "timeout"), ("4", "runtime_error")]
    assert "more cases" not in done.stdout


def test_a_sample_in_a_terminal_is_coloured_and_inert(run):
    shown = in_terminal("show", "run", "--sample", SAMPLE, folder=run, columns=60)
    assert "\x1b[2J" not in shown and "\x1b]0" not in shown and "\x07" not in shown
    assert re.search(r"\x1b\[[0-9;]*m *def\x1b\[0m", shown), "the code has no colours"
    assert re.search(r"\x1b\[31m- 2", shown) and re.search(r"\x1b\[32m\+ 4", shown)


def test_samples_of_a_status_with_what_is_known_of_the_reason(run):
    (row,) = show(run, "--status", "api_error").stdout.splitlines()[1:]
    assert row.split() == ["two/q/0", "0", "of", "1", "sandbox", "gone"]
    none = show(run, "--status", "timeout").stdout
    assert none == "no sample is timeout\n"
    unjudged = show(run, "--sample", "q").stdout
    assert "judged by" not in unjudged  # by none, none


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sample", "p/2"], "2 problems have the name 'p/2': one/p%2F2/0, two/p%2F2/0; name one"),
        (
            ["--sample", "z"],
            "run has no sample 'z'; name it DATASET/PROBLEM/INDEX, such as two/q/0",
        ),
        (["--cases", "all"], "--cases needs --sample"),
        (["--sample", "q", "--status", "timeout"], "--sample and --status: give one of them"),
    ],
)
def test_what_names_no_sample_is_one_line(run, options, said):
    done = show(run, *options)
    assert isinstance(done.exception, ConfigError)
    assert done.stdout == ""
    assert said in str(done.exception)
