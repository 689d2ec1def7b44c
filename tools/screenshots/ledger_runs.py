"""Ledger fixtures for screenshots: a finished run and one in progress, from a demo run."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from shared.artifacts import GENERATIONS, RUN, VERDICTS
from shared.datasets import read_datasets
from shared.errors import DataError
from shared.json_lines import read_json_lines
from shared.ledger import Ledger
from shared.plan import make_plan
from shared.run_record import RunMeta, RunState
from shared.schemas import Generation, Problem, Verdict

FINISHED, MOVING = "demo-2f9d1c7ab304", "demo-again-81c40e55d6f2"
# A fixed time, 2 March 2026, 9:00 UTC, so that pictures of an unchanged page are equal.
_BEGUN = 1_772_442_000.0
_FACTS = ("config", "versions", "seed", "model", "git_commit", "active_seconds")
_GENERATED, _JUDGED = 0.8, 0.6


@dataclass(frozen=True, slots=True)
class Recorded:
    """Records of a run: facts, problems, and each sample's completion and verdict as judged."""

    facts: dict[str, Any]
    problems: Sequence[Problem]
    records: Sequence[tuple[Generation, Verdict]]

    @property
    def begun(self) -> float:
        return float(self.facts["started_at"])

    @property
    def seconds(self) -> float:
        return float(self.facts["finished_at"]) - self.begun


def read_run(folder: Path, data: Path) -> Recorded:
    """Read the folder of a complete run over the data sets in ``data``.

    Raises:
        DataError: A file is missing or is not a run's, or a sample has no verdict.
    """
    try:
        facts = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / RUN}: {error}; name the folder of a complete run") from None
    made = [Generation.model_validate(row) for _, row in read_json_lines(str(folder / GENERATIONS))]
    rows = [Verdict.model_validate(row) for _, row in read_json_lines(str(folder / VERDICTS))]
    judged = {verdict.sample: verdict for verdict in rows}
    if missing := [one.sample.key for one in made if one.sample not in judged]:
        raise DataError(f"{folder / VERDICTS}: no verdict on {missing[0]}; finish the run first")
    records = sorted(
        ((one, judged[one.sample]) for one in made), key=lambda pair: pair[1].judged_at or 0.0
    )
    return Recorded(facts, read_datasets([str(data)]), records)


def enter_finished(redis: Redis, recorded: Recorded, output: Path) -> Ledger:
    """Enter the whole run; the aggregator then publishes it into ``output``."""
    ledger = _open(redis, FINISHED, recorded, name="demo", started_at=_BEGUN, output=str(output))
    for made, verdict in recorded.records:
        _enter(ledger, made, verdict, shift=_BEGUN - recorded.begun)
    ledger.finish(_BEGUN + recorded.seconds)
    ledger.set_state(RunState.JUDGED)
    return ledger


def enter_moving(redis: Redis, recorded: Recorded, output: Path) -> Ledger:
    """Enter a part of it as if it were being judged now, so that it has a rate and a time left."""
    count = len(recorded.records)
    last = recorded.records[int(_JUDGED * count) - 1][1].judged_at or recorded.begun
    shift = time.time() - last
    ledger = _open(
        redis, MOVING, recorded, name="demo-again", started_at=_BEGUN + 3600, output=str(output)
    )
    for number, (made, verdict) in enumerate(recorded.records[: int(_GENERATED * count)]):
        _enter(ledger, made, verdict if number < int(_JUDGED * count) else None, shift)
    return ledger


def _open(redis: Redis, run: str, recorded: Recorded, **facts: str | float) -> Ledger:
    kept = {name: recorded.facts[name] for name in _FACTS if name in recorded.facts}
    plan = make_plan(recorded.problems, lambda _problem: range(1))
    ledger = Ledger(redis, run)
    ledger.open(RunMeta.model_validate({**kept, **facts}), plan, recorded.problems)
    return ledger


def _enter(ledger: Ledger, made: Generation, verdict: Verdict | None, shift: float) -> None:
    ledger.record(made.model_copy(update={"finished_at": _moved(made.finished_at, shift)}))
    if verdict is not None:
        moved = {"judged_at": _moved(verdict.judged_at, shift)}
        ledger.record_verdict(verdict.model_copy(update=moved))


def _moved(moment: float | None, shift: float) -> float | None:
    return None if moment is None else moment + shift
