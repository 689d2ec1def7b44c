from pathlib import Path

import pytest

from services.data.records import write_dataset
from shared import artifacts
from shared.errors import DataError
from shared.outlines import ProblemOutline
from tests.exports.conftest import Exported, problems


def test_answers_verdicts_and_prompts_come_together(finished: Exported) -> None:
    samples = finished.load()
    assert [len(members) for members in samples.datasets.values()] == [2, 2, 2]
    first = samples.datasets["humaneval"][0]
    assert first.prompt == "Solve HumanEval/0."
    assert samples.messages(first) == [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Complete:\nSolve HumanEval/0."},
    ]
    assert samples.notes == []


def test_an_answer_that_was_never_generated(finished: Exported) -> None:
    lost = finished.load().datasets["code-contests test"][1]
    assert (lost.generation.completion, lost.generation.error) == ("", "sandbox: http_503")
    assert not lost.verdict.judged


def test_data_that_is_gone_and_that_the_run_did_not_record_is_a_note(finished: Exported) -> None:
    finished.data.unlink()
    samples = finished.load()
    assert samples.datasets["humaneval"][0].question is None
    (note,) = samples.notes
    assert "data.parquet" in note
    assert "--data" in note


def test_prompts_of_data_that_is_gone_are_those_that_the_run_recorded(finished: Exported) -> None:
    before = finished.load()
    finished.data.unlink()
    outlines = [ProblemOutline.of(problem, before.record) for problem in problems()]
    lines = "".join(f"{one.model_dump_json()}\n" for one in outlines)
    (finished.run / artifacts.PROBLEMS).write_text(lines)
    after = finished.load()
    assert after.datasets == before.datasets
    assert after.notes == []
    (finished.run / artifacts.PROBLEMS).write_text(lines.partition("\n")[0] + "\n")
    assert len(finished.load().notes) == 1


def test_data_that_has_moved(finished: Exported, tmp_path: Path) -> None:
    moved = finished.data.rename(tmp_path / "moved.parquet")
    samples = finished.load(str(moved))
    assert samples.datasets["mbpp_reg"][0].prompt == "Solve mbpp_11."
    assert samples.notes == []


def test_data_that_is_another(finished: Exported) -> None:
    changed = [p.model_copy(update={"prompt": "Something else."}) for p in problems()]
    write_dataset(str(finished.data), changed)
    (note,) = finished.load().notes
    assert "humaneval is not the data set that the run was made with" in note
    with pytest.raises(DataError, match="not the data set that the run was made with"):
        finished.load(str(finished.data))
