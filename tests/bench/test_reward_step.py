import json
from pathlib import Path

import pytest

from tests.bench.reward_step.figures import (
    Reward,
    as_json,
    covered,
    critical_seconds,
    figures,
    read_metrics,
    read_rewards,
)

pytestmark = pytest.mark.nightly


def reward(step: int, generated: float, end: float, score: float | None = 1.0) -> Reward:
    return Reward(step, generated, generated, end, score, error=None if score else "boom")


def test_the_critical_path_begins_with_the_last_generation() -> None:
    early = reward(1, generated=0.0, end=9.0)
    late = reward(1, generated=5.0, end=6.0)

    assert critical_seconds([early, late]) == 4.0
    assert critical_seconds([reward(1, 0.0, 2.0), late]) == 1.0


def test_overlapping_waits_count_once() -> None:
    assert covered([(0, 2), (1, 3), (5, 6), (5.2, 5.4)]) == 4
    assert covered([]) == 0


def test_the_first_step_does_not_count() -> None:
    rewards = [reward(1, 0, 100), reward(2, 0, 1), reward(2, 3, 4, score=None), reward(3, 0, 3)]
    metrics = {2: {"timing_s/step": 4.0, "timing_s/gen": 2.0}, 3: {"timing_s/step": 4.0}}

    found = figures(rewards, metrics)

    assert found.steps == 2
    assert found.completions == 1.5
    assert found.critical.mean == 2.0
    assert found.critical.most == 3.0
    assert found.busy.mean == 2.5
    assert found.step == 4.0
    assert found.generation == 2.0
    assert found.critical_share == 0.5
    assert found.failed == 1
    assert found.score == (0.75, 0.75)


def test_a_run_that_ended_at_once_has_no_figures() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        figures([reward(1, 0, 1), reward(2, 0, 1)], {})


def test_logs_are_read_and_the_table_is_json(tmp_path: Path) -> None:
    line = {"step": 2, "generated": 1.0, "begin": 1.1, "end": 2.0, "score": 0.5, "cached": 1.0}
    failed = {"step": 3, "generated": 1.0, "begin": 1.1, "end": 2.0, "error": "NotJudgedError()"}
    log, metrics = tmp_path / "rewards.jsonl", tmp_path / "metrics.jsonl"
    log.write_text(
        "".join(json.dumps({**each}) + "\n" for each in ({**line, "step": 1}, line, failed))
    )
    metrics.write_text(
        '{"step": 2, "data": {"timing_s/step": 3.0}}\n{"step": 2, "data": {"a": 1}}\n'
    )

    found = figures(read_rewards(log), read_metrics(metrics))

    assert read_metrics(metrics) == {2: {"timing_s/step": 3.0, "a": 1}}
    assert read_metrics(tmp_path / "none") == {}
    table = json.loads(as_json({"plumbline": found}, {"cores": 2}))
    assert table["rewards"]["plumbline"]["cached"] == 0.5
    assert table["rewards"]["plumbline"]["failed"] == 1
    assert table["facts"] == {"cores": 2}
