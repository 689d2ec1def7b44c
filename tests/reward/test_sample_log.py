"""The log of rewarded completions: what is chosen, where it goes, that it stays small."""

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.reward.models import ScoreItem, ScoreResult
from services.reward.sample_log import SampleFiles
from services.reward.settings import RewardSettings
from shared.redaction import remember_secrets
from shared.reference import ProblemReference
from shared.statuses import FinalStatus

PROBLEM = ProblemReference("set", "p/1", "0" * 16)


def result(**fields: Any) -> ScoreResult:
    given = {
        "score": 1.0, "accepted": True, "pass_ratio": 1.0, "status": FinalStatus.SUCCESS,
        "cases_passed": 2, "cases_total": 2, "cases_not_run": 0, "judged": True,
    }  # fmt: skip
    return ScoreResult.model_validate({**given, **fields})


def item(completion: str) -> ScoreItem:
    return ScoreItem(completion=completion, dataset="set", problem_id="p/1")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def logged(folder: Path, *given: tuple[str, ScoreResult], every: int = 1, **options: int) -> None:
    """Log results as one service does."""
    files = SampleFiles(folder, every=every, **options)
    for completion, found in given:
        files.record(item(completion), PROBLEM, found)
    files.close()


def test_a_line_has_what_a_reader_needs(tmp_path: Path) -> None:
    logged(tmp_path / "new", ("print(1)", result(score=0.5, detail="why")))
    [line] = lines(tmp_path / "new" / "set.success.some.jsonl")
    assert line.pop("at") > 1e9
    assert line == {
        "dataset": "set", "problem_id": "p/1", "reference": PROBLEM.text, "score": 0.5,
        "accepted": True, "pass_ratio": 1.0, "status": "success", "detail": "why",
        "cases_passed": 2, "cases_total": 2, "cases_not_run": 0, "judge_seconds": None,
        "completion": "print(1)",
    }  # fmt: skip


def test_each_kind_has_a_file_of_its_own(tmp_path: Path) -> None:
    wrong = {"status": FinalStatus.WRONG_ANSWER, "accepted": False}
    logged(
        tmp_path,
        ("a", result()),
        ("b", result(**wrong, score=0.0)),
        ("c", result(**wrong, score=0.5)),
        ("d", result(**wrong, score=0.25)),
    )
    assert {path.name: len(lines(path)) for path in tmp_path.iterdir()} == {
        "set.success.full.jsonl": 1,
        "set.wrong_answer.none.jsonl": 1,
        "set.wrong_answer.some.jsonl": 2,
    }


def test_replicas_and_restarts_choose_alike(tmp_path: Path) -> None:
    given = [(f"print({number})", result()) for number in range(400)]
    for name, order in (("one", given), ("two", given[::-1])):
        for start in range(0, len(order), 50):  # fewer than may wait for the disk
            logged(tmp_path / name, *order[start : start + 50], every=10)
    one, two = (lines(tmp_path / name / "set.success.full.jsonl") for name in ("one", "two"))
    chosen = {line["completion"] for line in one}
    assert chosen == {line["completion"] for line in two}
    assert len(one) == len(chosen)
    assert 15 < len(chosen) < 75


def test_more_of_what_the_guards_stopped(tmp_path: Path) -> None:
    given = [(f"print({number})", result(detail="early_exit")) for number in range(50)]
    logged(tmp_path, *given, every=10)
    assert len(lines(tmp_path / "set.success.full.jsonl")) == 50


def test_remembered_and_unjudged_results_are_not_logged(tmp_path: Path) -> None:
    unjudged = ScoreResult(reason="x")
    logged(tmp_path, ("a", result(cached=True)), ("b", unjudged))
    assert list(tmp_path.iterdir()) == []


def test_files_are_rotated_and_strata_limited(tmp_path: Path) -> None:
    for number in range(100):
        logged(tmp_path, (f"{number} " + "x" * 500, result()), max_bytes=5000, max_files=1)
    logged(tmp_path, ("other", result(score=0.0)), max_files=1)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes.keys() <= {"set.success.full.jsonl", "set.success.full.jsonl.1"}
    assert all(size < 6000 for size in sizes.values())
    assert lines(tmp_path / "set.success.full.jsonl.1")
    newest = [line for path in tmp_path.iterdir() for line in lines(path)]
    assert any(line["completion"].startswith("99 ") for line in newest)


def test_secrets_and_long_texts(tmp_path: Path) -> None:
    remember_secrets("hunter2-hunter2")
    text = "get('https://me:pass@host.example/x')  # hunter2-hunter2\n" + "x" * 200_000
    logged(tmp_path, (text, result()))
    [line] = lines(tmp_path / "set.success.full.jsonl")
    assert "hunter2" not in line["completion"]
    assert "pass" not in line["completion"]
    assert len(line["completion"]) < 70_000


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "é" * 300, ".", "a\nb"])
def test_names_of_clients_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    files = SampleFiles(tmp_path / "log", every=1)
    files.record(item("x"), ProblemReference(name, "p", "0" * 16), result())
    files.close()
    [path] = (tmp_path / "log").iterdir()
    assert lines(path)[0]["dataset"] == name
    assert list(tmp_path.iterdir()) == [tmp_path / "log"]


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    logged(tmp_path / "file", *[("x", result())] * 200)


def test_a_bug_is_in_the_log_of_the_service(tmp_path: Path) -> None:
    broken = result().model_copy(update={"detail": "\ud800"})  # UTF-8 cannot encode it
    with capture_logs() as said:
        logged(tmp_path, ("x", broken), ("x", result()))
    assert [line["event"] for line in said] == ["a sample is not logged"]
    assert said[0]["exc_info"]
    assert [path.name for path in tmp_path.iterdir()] == ["set.success.full.jsonl"]


def test_settings(tmp_path: Path) -> None:
    found = RewardSettings(redis_url="redis://x", samples=str(tmp_path), sample_every=1).sample_log
    assert isinstance(found, SampleFiles)
    found.record(item("x"), PROBLEM, result())
    found.close()
    assert list(tmp_path.iterdir())
    RewardSettings(redis_url="redis://x").sample_log.record(item("x"), PROBLEM, result())
