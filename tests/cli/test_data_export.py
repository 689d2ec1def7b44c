"""`plumb data export`: the files are those that verl reads, with the prompts of a run."""

import json
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest
from typer.testing import CliRunner

from services.cli.commands import data_app
from services.data.records import write_dataset
from shared.config import load_config
from shared.datasets import read_dataset
from shared.prompts import chat_messages
from shared.reference import reference_of
from shared.schemas import StdioTests
from tests.cli.commands import ROOT, Outcome, plumb

CONFIG = "configs/demo.yaml"
DEMO = Path("demo/data")
TRAIN, VALIDATION = DEMO / "codecontests_valid.parquet", DEMO / "humaneval.parquet"


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def export(output: Path, *options: str) -> Outcome:
    arguments = ("export", "--config", CONFIG, "--output", str(output))
    return plumb("data", *arguments, *options, folder=ROOT)


def both(output: Path, *options: str) -> Outcome:
    files = ("--train", str(TRAIN), "--validation", str(VALIDATION))
    return export(output, *files, "--allow-eval", *options)


def test_rows_are_the_problems_with_the_runs_prompts(tmp_path: Path) -> None:
    system = "data.system_prompt=Think first."
    done = both(tmp_path / "out", system)
    assert done.code == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{tmp_path}/out/train.parquet: 14 problems of codecontests_valid",
        f"{tmp_path}/out/validation.parquet: 15 problems of humaneval",
    ]
    config = load_config(ROOT / CONFIG, [system])
    for purpose, data in (("train", TRAIN), ("validation", VALIDATION)):
        frame = pd.read_parquet(tmp_path / "out" / f"{purpose}.parquet")
        problems = read_dataset(str(ROOT / data))
        assert len(frame) == len(problems)
        for index, (problem, row) in enumerate(
            zip(problems, frame.to_dict("records"), strict=True)
        ):
            assert list(row["prompt"]) == chat_messages(problem, config)
            assert row["data_source"] == problem.dataset
            reference = reference_of(problem).text
            assert row["reward_model"] == {"style": "rule", "ground_truth": reference}
            extra = row["extra_info"]
            assert (extra["index"], extra["split"]) == (index, purpose)
            assert (extra["dataset"], extra["problem_id"]) == (problem.dataset, problem.problem_id)
            assert problem.prompt_sha256 not in json.dumps(extra)
            assert "agent_name" not in row
            assert "tools_kwargs" not in extra


def test_tests_can_be_inline(tmp_path: Path) -> None:
    assert both(tmp_path, "--tests", "inline").code == 0
    frame = pd.read_parquet(tmp_path / "train.parquet")
    problems = read_dataset(str(ROOT / TRAIN))
    truths = [one["ground_truth"] for one in frame["reward_model"]]
    assert truths == [problem.ground_truth for problem in problems]


def test_a_tool_agent_finds_the_public_tests(tmp_path: Path) -> None:
    assert both(tmp_path, "--agent-name", "tool_agent").code == 0
    row = pd.read_parquet(tmp_path / "train.parquet").iloc[0]
    assert row["agent_name"] == "tool_agent"
    assert row["extra_info"]["need_tools_kwargs"] is True
    assert public_tests(row) == []  # the demo's problems do not tell which ones are public
    problem = read_dataset(str(TRAIN))[0].model_copy(update={"extra_info": '{"public_tests": 2}'})
    write_dataset(str(tmp_path / "public.parquet"), [problem])
    data = str(tmp_path / "public.parquet")
    options = ("--agent-name", "tool_agent", "--allow-unlocked")
    assert export(tmp_path / "out", "--validation", data, *options).code == 0
    row = pd.read_parquet(tmp_path / "out" / "validation.parquet").iloc[0]
    tests = problem.tests
    assert isinstance(tests, StdioTests)
    assert public_tests(row) == [
        {"input": tests.inputs[i], "output": tests.outputs[i]} for i in range(2)
    ]


def public_tests(row: Any) -> list[dict[str, str]]:
    return list(
        row["extra_info"]["tools_kwargs"]["run_public_tests"]["create_kwargs"]["public_tests"]
    )


def test_an_earlier_export_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    assert both(tmp_path).code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = export(tmp_path, "--train", str(VALIDATION), "--allow-eval")
    assert done.code == 2
    assert "holds an export (export.json, train.parquet, validation.parquet)" in done.line
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert export(tmp_path, "--train", str(VALIDATION), "--allow-eval", "--force").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export.json", "train.parquet"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "nothing to export: give --train PATH, --validation PATH, or both"),
        (("--train", "demo/data/none.parquet"), "none.parquet is not in the lock"),
        (("--train", "none.parquet", "data.lock=null"), "no such file"),
        (
            ("--train", str(TRAIN), "--validation", str(TRAIN), "--allow-eval"),
            "codecontests_valid/cc_valid_001 is in the training and the validation data",
        ),
        (
            ("--train", str(TRAIN), "data.templates.codecontests_valid=Solve it."),
            "data.templates.codecontests_valid lacks {prompt}",
        ),
    ],
)
def test_what_cannot_be_exported(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    done = export(tmp_path / "out", *options)
    assert done.code == 2
    assert words in done.line
    assert not (tmp_path / "out").exists()


def test_secrets_of_an_address_are_not_in_the_record(tmp_path: Path) -> None:
    content = (ROOT / VALIDATION).read_bytes()
    fsspec.filesystem("memory").pipe("/user:topsecret@bucket/humaneval.parquet", content)
    address = "memory://user:topsecret@bucket/humaneval.parquet"
    files = ["--validation", address, "--output", str(tmp_path)]
    done = CliRunner().invoke(data_app, ["export", "--config", CONFIG, *files, "data.lock=null"])
    assert done.exit_code == 0, done.exception
    record = (tmp_path / "export.json").read_text()
    assert "memory://***@bucket/humaneval.parquet" in record
    assert "topsecret" not in record + done.output


def test_an_output_without_a_name_is_the_working_directory(tmp_path: Path) -> None:
    files = ("export", "--validation", str(ROOT / VALIDATION))
    assert plumb("data", *files, folder=tmp_path).code == 2
    assert not any(tmp_path.iterdir())
    done = plumb("data", *files, "--output", "", folder=tmp_path)
    assert done.stdout.startswith("./validation.parquet: 15 problems"), done.stderr
    assert (tmp_path / "export.json").exists()


def test_data_that_differ_from_the_lock(tmp_path: Path) -> None:
    frame = pd.read_parquet(ROOT / TRAIN)
    frame.head(3).to_parquet(tmp_path / TRAIN.name)
    data = str(tmp_path / TRAIN.name)
    done = export(tmp_path / "out", "--validation", data)
    assert done.code == 2
    assert "the lock has" in done.line
    done = export(tmp_path / "out", "--validation", data, "--allow-unlocked")
    assert done.code == 0
    assert "warning: " in done.stdout
    assert "validation.parquet: 3 problems of codecontests_valid" in done.stdout


def test_one_prompt_under_two_names(tmp_path: Path) -> None:
    frame = pd.read_parquet(TRAIN)
    copy = tmp_path / "copy.parquet"
    frame.assign(dataset="copy").to_parquet(copy)
    files = ("--train", str(TRAIN), "--validation", str(copy))
    done = export(tmp_path / "out", *files, "--allow-eval", "--allow-unlocked")
    assert done.code == 2
    words = "copy/cc_valid_001 of the validation data has the prompt of codecontests_valid/"
    assert words in done.line


def imported(folder: Path, *options: str) -> str:
    """A set of the demo's problems that was imported with the given role."""
    source = ROOT / "demo/problems/codecontests_valid.jsonl"
    files = ("--source", str(source), "--output", str(folder))
    done = plumb("data", "import", "jsonl", *files, *options, folder=ROOT)
    assert done.code == 0, done.stderr
    (file,) = folder.glob("*.parquet")
    return str(file)


def test_training_on_evaluation_data_is_refused(tmp_path: Path) -> None:
    no_lock = ("data.lock=null",)
    evaluation = str(TRAIN)
    done = export(tmp_path / "out", "--train", evaluation)
    assert done.code == 2
    assert "codecontests_valid is evaluation data" in done.line
    assert not (tmp_path / "out").exists()
    assert export(tmp_path / "a", "--validation", evaluation).code == 0
    training = imported(tmp_path / "train", "--role", "train")
    assert export(tmp_path / "b", "--train", training, *no_lock).code == 0
    alone = tmp_path / "alone.parquet"
    alone.write_bytes(Path(training).read_bytes())
    done = export(tmp_path / "out", "--train", str(alone), *no_lock)
    assert "alone.parquet, which has no manifest, is evaluation data" in done.line
