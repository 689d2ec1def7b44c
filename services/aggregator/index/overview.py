"""What the index says of whole runs."""

import json
import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from shared.run_record import RunState
from shared.statuses import FinalStatus

_RATE_WINDOW = 60.0
_BUCKETS = 120
_COLUMNS = "id, run, state, facts, events, completions"


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run with its counts. ``statuses``: samples by data set and status; ``planned``: how many
    problems and samples each data set owes; ``completions``: samples that have a completion."""

    id: int
    run: str
    state: str | None
    facts: dict[str, Any]
    events: int
    completions: int
    planned: dict[str, tuple[int, int]]
    statuses: dict[str, dict[FinalStatus, int]]
    accepted: dict[str, int]

    @property
    def samples_planned(self) -> int:
        return sum(samples for _, samples in self.planned.values())

    @property
    def verdicts(self) -> int:
        return sum(sum(counts.values()) for counts in self.statuses.values())

    @property
    def api_errors(self) -> int:
        return sum(counts.get(FinalStatus.API_ERROR, 0) for counts in self.statuses.values())

    @property
    def datasets(self) -> list[str]:
        return sorted({*self.planned, *self.statuses})


def all_runs(connection: sqlite3.Connection) -> list[IndexedRun]:
    """Every run, by id. One that is being forgotten is none any more."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM runs ORDER BY run")
    return [_run(connection, row) for row in rows.fetchall() if not row["run"].startswith("\0")]


def find_run(connection: sqlite3.Connection, run: str) -> IndexedRun | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM runs WHERE run = ?", (run,)).fetchone()
    return None if row is None or run.startswith("\0") else _run(connection, row)


def results(connection: sqlite3.Connection, run: IndexedRun) -> dict[str, Any]:
    """What was published of a run: its ``metrics`` and ``slices``; empty before that."""
    (found,) = connection.execute("SELECT results FROM runs WHERE id = ?", (run.id,)).fetchone()
    return dict(json.loads(found)) if run.state in (RunState.COMPLETE, RunState.INCOMPLETE) else {}


def rate(connection: sqlite3.Connection, run: IndexedRun) -> float | None:
    """Verdicts per second over the last minute; None where the run is not at work."""
    if run.state != RunState.RUNNING:
        return None
    now = time.time()
    count, first = connection.execute(
        "SELECT count(*), min(ifnull(judged_at, -1)) FROM samples "
        "WHERE run_id = ? AND ifnull(judged_at, -1) BETWEEN ? AND ?",
        (run.id, now - _RATE_WINDOW, now),
    ).fetchone()
    return 0.0 if not count else float(count / max(1.0, now - first))


@dataclass(frozen=True, slots=True)
class Timeline:
    """``generated[i]`` and ``judged[i]`` are counts from ``start + i * width`` on, in seconds."""

    start: int
    width: int
    generated: list[int]
    judged: list[int]


def timeline(connection: sqlite3.Connection, run_id: int) -> Timeline | None:
    """When samples that have a verdict were generated and judged; None where no time is known.

    Buckets are as wide as it takes for ``_BUCKETS`` of them, in whole seconds.
    """
    first, last = connection.execute(
        "SELECT min(second), max(second) FROM moments WHERE run_id = ? AND samples > 0", (run_id,)
    ).fetchone()
    if first is None:
        return None
    width = (last - first) // _BUCKETS + 1
    counts = {kind: [0] * ((last - first) // width + 1) for kind in ("generated", "judged")}
    for kind, second, samples in connection.execute(
        "SELECT kind, second, samples FROM moments WHERE run_id = ?", (run_id,)
    ):
        if samples:
            counts[kind][(second - first) // width] += samples
    return Timeline(first, width, counts["generated"], counts["judged"])


def _run(connection: sqlite3.Connection, row: sqlite3.Row) -> IndexedRun:
    planned = connection.execute(
        "SELECT dataset, problems, samples FROM planned WHERE run_id = ?", (row["id"],)
    )
    statuses: dict[str, dict[FinalStatus, int]] = {}
    accepted: dict[str, int] = {}
    for dataset, status, samples, good in connection.execute(
        "SELECT dataset, final_status, samples, accepted FROM tallies "
        "WHERE run_id = ? AND samples > 0 ORDER BY dataset, final_status",
        (row["id"],),
    ):
        statuses.setdefault(dataset, {})[FinalStatus(status)] = samples
        accepted[dataset] = accepted.get(dataset, 0) + good
    return IndexedRun(
        id=row["id"],
        run=row["run"],
        state=row["state"],
        facts=json.loads(row["facts"]),
        events=row["events"],
        completions=row["completions"],
        planned={dataset: (problems, samples) for dataset, problems, samples in planned},
        statuses=statuses,
        accepted=accepted,
    )
