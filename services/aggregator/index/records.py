"""Records of indexed runs."""

import sqlite3

from services.aggregator.index.overview import IndexedRun
from shared.run_record import RunRecord, RunState


def run_record(connection: sqlite3.Connection, run: IndexedRun) -> RunRecord:
    """The record of a run: what is published, else its meta data and what is counted so far.

    Raises:
        ValidationError: Another version wrote the run's facts.
    """
    planned = connection.execute(
        "SELECT dataset, sha256, problems, samples FROM planned WHERE run_id = ?", (run.id,)
    )
    document = {
        **run.facts,
        "datasets": run.facts.get("datasets") or [dict(row) for row in planned],
        "run": run.run,
        "state": run.state or RunState.RUNNING,
        "complete": run.state is RunState.COMPLETE,
        "samples": run.samples_planned,
        "samples_unjudged": max(run.samples_planned, run.verdicts) - run.verdicts + run.api_errors,
    }
    return RunRecord.model_validate(document)
