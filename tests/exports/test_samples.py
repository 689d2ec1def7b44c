import pytest

from shared import artifacts
from shared.errors import OutputError
from tests.exports.conftest import Exported


def test_answers_verdicts_and_prompts_come_together(finished: Exported) -> None:
    samples = finished.load()
    assert [len(members) for members in samples.datasets.values()] == [2, 2, 2]
    assert samples.datasets["humaneval"][0].problem.texts == [
        "Be terse.",
        "Complete:\nSolve HumanEval/0.",
    ]
    assert samples.notes == []


def test_an_answer_that_was_never_generated(finished: Exported) -> None:
    lost = finished.load().datasets["code-contests test"][1]
    assert (lost.generation.completion, lost.generation.error) == ("", "sandbox: http_503")
    assert not lost.verdict.judged


def test_a_run_without_its_file_of_problems(finished: Exported) -> None:
    (finished.run / artifacts.PROBLEMS).unlink()
    with pytest.raises(OutputError, match=r"problems\.jsonl: no problem humaneval/HumanEval/0"):
        finished.load()
