import json

import pytest

from services.exports import ExportFormat, export_samples
from services.exports.evalplus import task_id
from services.exports.samples import RunSamples
from shared.artifacts import OutputFolder
from shared.errors import DataError
from tests.exports.conftest import BODY, Exported

CODE = "def f():\n    return 1"


def test_solutions(finished: Exported) -> None:
    folder = finished.export(ExportFormat.EVALPLUS)
    assert {path.name for path in folder.iterdir()} == {"humaneval.jsonl", "mbpp_reg.jsonl"}
    read = [json.loads(line) for line in (folder / "humaneval.jsonl").open()]
    assert read[0] == {"task_id": "HumanEval/0", "solution": CODE}
    assert read[1]["task_id"] == "HumanEval/1"
    assert read[1]["completion"].rstrip() == BODY.rstrip()
    read = [json.loads(line) for line in (folder / "mbpp_reg.jsonl").open()]
    assert read == [
        {"task_id": "Mbpp/11", "solution": CODE},
        {"task_id": "Mbpp/11", "solution": ""},
    ]


def test_other_data_sets_are_named(finished: Exported) -> None:
    samples = finished.load()
    export_samples(ExportFormat.EVALPLUS, samples, OutputFolder("memory://evalplus"))
    assert samples.notes == ["skipped, because EvalPlus has no tests for them: code-contests test"]


def test_a_run_without_any_that_it_knows(finished: Exported) -> None:
    samples = finished.load()
    others = {"code-contests test": samples.datasets["code-contests test"]}
    one = RunSamples(samples.run, others)
    with pytest.raises(DataError, match="not code-contests test; choose another format"):
        export_samples(ExportFormat.EVALPLUS, one, OutputFolder("memory://evalplus-none"))


@pytest.mark.parametrize(
    ("problem_id", "expected"),
    [
        ("HumanEval/163", "HumanEval/163"),
        ("mbpp_11", "Mbpp/11"),
        ("mbpp_011", "Mbpp/11"),
        ("Mbpp/602", "Mbpp/602"),
        ("mbpp_", None),
        ("mbpp_1x", None),
        ("cc_valid_001", None),
    ],
)
def test_task_ids(problem_id: str, expected: str | None) -> None:
    assert task_id(problem_id) == expected


def test_the_library_reads_it(finished: Exported) -> None:
    data = pytest.importorskip("evalplus.data")
    path = finished.export(ExportFormat.EVALPLUS) / "humaneval.jsonl"
    solutions = list(data.load_solutions(str(path)))
    assert [s["task_id"] for s in solutions] == ["HumanEval/0", "HumanEval/1"]
    assert solutions[0]["solution"] == CODE
