"""Runs of the index as the runs that ``shared.analysis`` compares, read as columns."""

import sqlite3

from pydantic import ValidationError

from services.aggregator.index.overview import IndexedRun, published_metrics
from services.aggregator.index.problems import read_problems
from services.aggregator.index.records import run_record
from shared.analysis.runs import ComparedRun, DatasetVerdicts, VerdictRow
from shared.errors import DataError
from shared.run_record import RunRecord
from shared.schemas import SampleId, describe

_ROWS = (
    f"SELECT {', '.join(VerdictRow._fields)} FROM samples WHERE run_id = ? AND dataset = ? "
    "ORDER BY problem_id, sample_index"
)
_DETAIL = (
    "SELECT detail FROM samples WHERE run_id = ? AND dataset = ? AND problem_id = ? "
    "AND sample_index = ?"
)


def read_run(connection: sqlite3.Connection, run: IndexedRun, label: str) -> ComparedRun:
    """Load a run with the verdicts that it has so far, without their details.

    Raises:
        DataError: Another version wrote its settings in a different form.
    """
    record = _record(connection, run)
    return ComparedRun(
        label=label,
        name=record.name or run.run,
        place=run.run,
        record=record,
        verdicts={name: _verdicts(connection, run.id, name) for name in sorted(run.statuses)},
        problems=read_problems(connection, run.id),
        summary={
            name: metrics
            for name, metrics in published_metrics(connection, run).items()
            if isinstance(metrics, dict)
        },
    )


def read_detail(connection: sqlite3.Connection, run_id: int, sample: SampleId) -> str | None:
    """The detail of a sample's verdict; None if it has none, or is gone."""
    key = (run_id, sample.dataset, sample.problem_id, sample.sample_index)
    row = connection.execute(_DETAIL, key).fetchone()
    return None if row is None else row[0]


def _verdicts(connection: sqlite3.Connection, run_id: int, dataset: str) -> DatasetVerdicts:
    cursor = connection.cursor()
    cursor.row_factory = None  # tuples: a row of names takes three times as long
    return DatasetVerdicts.of(cursor.execute(_ROWS, (run_id, dataset)).fetchall())


def _record(connection: sqlite3.Connection, run: IndexedRun) -> RunRecord:
    try:
        return run_record(connection, run)
    except ValidationError as error:
        raise DataError(
            f"run {run.run!r} cannot be compared: another version recorded its settings "
            f"({describe(error)})"
        ) from None
