"""Records in the index: verdict and completion of a sample, and the record of a run."""

import json
import sqlite3

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

from services.aggregator.index.overview import IndexedRun
from shared.ledger.packing import pack, unpack
from shared.run_record import RunRecord, RunState
from shared.schemas import Generation, SampleId, Verdict, without_surrogates


class Record(BaseModel):
    """A judged sample with all of its texts, as the index keeps it."""

    model_config = ConfigDict(frozen=True)

    verdict: Verdict
    generation: Generation | None

    def packed(self) -> bytes:
        try:
            return pack(self.model_dump_json())
        except PydanticSerializationError:  # lone surrogates, which JSON may contain
            text = json.dumps(self.model_dump(mode="json"), ensure_ascii=False)
            return pack(without_surrogates(text))


def read_sample(connection: sqlite3.Connection, run_id: int, sample: SampleId) -> Record | None:
    """Read a judged sample; None if it is not in the index."""
    row = connection.execute(
        "SELECT record FROM records JOIN samples USING (id) "
        "WHERE run_id = ? AND dataset = ? AND problem_id = ? AND sample_index = ?",
        (run_id, sample.dataset, sample.problem_id, sample.sample_index),
    ).fetchone()
    return None if row is None else Record.model_validate_json(unpack(row[0]))


def run_record(run: IndexedRun) -> RunRecord:
    """The record of a run: what is published, else its meta data and what is counted so far.

    Raises:
        ValidationError: Another version wrote the run's facts.
    """
    document = {
        **run.facts,
        "datasets": run.facts.get("datasets") or json.loads(run.stored_datasets),
        "run": run.run,
        "state": run.state or RunState.RUNNING,
        "complete": run.state is RunState.COMPLETE,
        "samples": run.samples_planned,
        "samples_unjudged": max(run.samples_planned, run.verdicts) - run.verdicts + run.api_errors,
    }
    return RunRecord.model_validate(document)
