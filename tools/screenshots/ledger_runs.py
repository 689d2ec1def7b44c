"""Ledger fixtures for screenshots: finished runs, from demo runs."""

import json
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

FINISHED = "demo-2f9d1c7ab304"
# Of a training, by the name of the checkpoint.
CHECKPOINTS = {"step-100": "step-100-5b1e03c9aa47", "step-200": "step-200-c07d96f2e813"}
# A fixed time, 2 March 2026, 9:00 UTC, so that pictures of an unchanged page are equal.
_STARTED_AT = 1_772_442_000.0
_FACTS = ("config", "versions", "seed", "model", "git_commit")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """Records of a run: facts, problems, and completion and verdict of each sample as judged."""

    facts: dict[str, Any]
    problems: Sequence[Problem]
    records: Sequence[tuple[Generation, Verdict]]

    @property
    def started_at(self) -> float:
        return float(self.facts["started_at"])

    @property
    def seconds(self) -> float:
        return float(self.facts["finished_at"]) - self.started_at


def read_run(folder: Path, data: Path) -> RecordedRun:
    """Read the folder of a complete run over the data sets in ``data``.

    Raises:
        DataError: A file is missing or invalid, or a sample has no verdict.
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
    return RecordedRun(facts, read_datasets([str(data)]), records)


def enter_finished(
    redis: Redis, recorded: RecordedRun, output: Path, name: str = "demo", hours: int = 0
) -> Ledger:
    """Write a whole run to the ledger; the aggregator then publishes it into ``output``.

    Args:
        redis: The ledger's server.
        recorded: The run.
        output: Its folder.
        name: Its name: of a checkpoint, or the demo's.
        hours: By how much it began earlier than the demo.
    """
    run, began = CHECKPOINTS.get(name, FINISHED), _STARTED_AT - 3600 * hours
    ledger = _open(redis, run, recorded, name=name, started_at=began, output=str(output))
    for made, verdict in recorded.records:
        shift = began - recorded.started_at
        ledger.record(made.model_copy(update={"finished_at": _shifted(made.finished_at, shift)}))
        moved = {"judged_at": _shifted(verdict.judged_at, shift)}
        ledger.record_verdict(verdict.model_copy(update=moved))
    ledger.add_active_seconds(float(recorded.facts["active_seconds"]))
    ledger.finish(began + recorded.seconds)
    ledger.set_state(RunState.JUDGED)
    return ledger


def _open(redis: Redis, run: str, recorded: RecordedRun, **facts: str | float) -> Ledger:
    kept = {name: recorded.facts[name] for name in _FACTS if name in recorded.facts}
    plan = make_plan(recorded.problems, lambda _problem: range(1))
    ledger = Ledger(redis, run)
    ledger.open(RunMeta.model_validate({**kept, **facts}), plan, recorded.problems)
    return ledger


def _shifted(moment: float | None, shift: float) -> float | None:
    return None if moment is None else moment + shift
