"""The log of rewards: which completions are chosen, what a line has, that it stays small."""

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.reward.models import ScoreItem, ScoreResult
from services.reward.reward_log import RewardLog
from shared.analysis.hacking import Sign
from shared.redaction import remember_secrets
from shared.reference import ProblemReference
from shared.statuses import FinalStatus

PROBLEM = ProblemReference("set", "p/1", "0" * 16)
SIGNS = {Sign.GUARD: False}


def result(**fields: Any) -> ScoreResult:
    given = {
        "score": 1.0, "accepted": True, "pass_ratio": 1.0, "status": FinalStatus.SUCCESS,
        "cases_passed": 2, "cases_total": 2, "cases_not_run": 0, "judged": True,
    }  # fmt: skip
    return ScoreResult.model_validate({**given, **fields})


def item(completion: str) -> ScoreItem:
    return ScoreItem(completion=completion, dataset="set", problem_id="p/1", group="g7")


def lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of all files, the oldest first."""
    files = sorted(folder.glob("rewards-*"), key=lambda path: path.name, reverse=True)
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def logged(folder: Path, *given: tuple[str, ScoreResult], every: int = 1) -> None:
    """Log results as one service does."""
    log = RewardLog(folder, "reward/1", every=every)
    for completion, found in given:
        log.record(item(completion), PROBLEM, found, 3, SIGNS)
    log.close()


def test_a_line_has_what_a_reader_needs(tmp_path: Path) -> None:
    logged(tmp_path / "new", ("print('%s')", result(score=0.5, detail="why")))
    [line] = lines(tmp_path / "new")
    assert line.pop("at") > 1e9
    assert line == {
        "session": "reward/1", "step": 3, "group": "g7",
        "weight": 1, "characters": 11, "signs": {"guard": False},
        "dataset": "set", "problem_id": "p/1", "reference": PROBLEM.text, "score": 0.5,
        "accepted": True, "pass_ratio": 1.0, "status": "success", "detail": "why",
        "cases_passed": 2, "cases_total": 2, "cases_not_run": 0, "judge_seconds": None,
        "completion": "print('%s')",
    }  # fmt: skip


def test_restarts_choose_alike_and_guarded_ones_are_all_there(tmp_path: Path) -> None:
    given = [(f"print({number})", result()) for number in range(400)]
    for name, order in (("one", given), ("two", given[::-1])):
        logged(tmp_path / name, *order, every=10)
    one, two = (lines(tmp_path / name) for name in ("one", "two"))
    chosen = {line["completion"] for line in one}
    assert chosen == {line["completion"] for line in two}
    assert 15 < len(chosen) == len(one) < 75
    assert {line["weight"] for line in one} == {10}
    logged(tmp_path / "g", *((c, result(detail="early_exit")) for c, _ in given[:50]), every=10)
    guarded = lines(tmp_path / "g")
    assert len(guarded) == 50 and {line["weight"] for line in guarded} == {1}


def test_a_remembered_result_is_logged_without_its_text_and_an_unjudged_one_not(
    tmp_path: Path,
) -> None:
    unjudged = ScoreResult(reason="x")
    logged(tmp_path, ("a", result(cached=True)), ("b", unjudged))
    [line] = lines(tmp_path)
    assert "completion" not in line and line["signs"] == {"guard": False}


def test_the_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.reward.reward_log._MAX_BYTES", 5000)
    logged(tmp_path, *((f"{n} " + "x" * 500, result()) for n in range(100)))
    files = list(tmp_path.iterdir())
    assert len(files) == 4 and all(path.stat().st_size <= 5000 for path in files)
    kept = [int(line["completion"].split()[0]) for line in lines(tmp_path)]
    assert kept == list(range(kept[0], 100))


def test_secrets_and_long_texts(tmp_path: Path) -> None:
    remember_secrets("hunter2-hunter2")
    text = "get('https://me:pass@host.example/x')  # hunter2-hunter2\n" + "x" * 200_000
    logged(tmp_path, (text, result()))
    [line] = lines(tmp_path)
    assert "hunter2" not in line["completion"]
    assert "pass" not in line["completion"]
    assert len(line["completion"]) < 70_000


def test_a_disk_that_cannot_be_written_stops_nothing_and_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with capture_logs() as entries:
        logged(tmp_path / "file" / "folder", *[("x", result())] * 200)
    assert [entry["event"] for entry in entries] == ["rewards are not logged"]
