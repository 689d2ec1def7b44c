"""Tables of samples and of cases, and the Parquet file of samples for the Hugging Face hub.

All data sets share one file: ``datasets`` interprets words such as ``test`` in file names as
splits, and then ignores the other files.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.exports.samples import RunSamples, Sample
from shared.artifacts import OutputFolder
from shared.finished_run import FinishedRun
from shared.statuses import NOT_RUN

_Row = dict[str, Any]
_BATCH = 256

_CASE_TEXTS = [(name, pa.string()) for name in ("status", "input", "expected", "actual", "stderr")]
_CASE = pa.struct([("case_index", pa.int64()), *_CASE_TEXTS])
_BREAKDOWN = ("passed", "wrong_answer", "timeout", "runtime_error", "syntax_error", NOT_RUN)
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("run", pa.string()),
    ("model", pa.string()),
    ("dataset", pa.string()),
    ("problem_id", pa.string()),
    ("sample_index", pa.int64()),
    ("prompt", pa.string()),
    ("completion", pa.string()),
    ("completion_sha256", pa.string()),
    ("completion_from", pa.string()),
    ("reasoning", pa.string()),
    ("final_status", pa.string()),
    ("detail", pa.string()),
    ("accepted", pa.bool_()),
    ("pass_ratio", pa.float64()),
    ("cases_passed", pa.int64()),
    ("cases_total", pa.int64()),
    ("cases_not_run", pa.int64()),
    ("case_codes", pa.list_(pa.int64())),
    ("error_breakdown", pa.struct([(name, pa.int64()) for name in _BREAKDOWN])),
    ("first_failed_case", _CASE),
    ("method", pa.string()),
    ("checker", pa.string()),
    ("shared_process", pa.bool_()),
    ("finish_reason", pa.string()),
    ("prompt_tokens", pa.int64()),
    ("output_tokens", pa.int64()),
    ("output_tokens_from", pa.string()),
    ("gen_time", pa.float64()),
    ("total_judge_time", pa.float64()),
    ("generation_error", pa.string()),
]
_SCHEMA = pa.schema(_COLUMNS)

_CASE_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("run", pa.string()),
    ("dataset", pa.string()),
    ("problem_id", pa.string()),
    ("sample_index", pa.int64()),
    ("case_index", pa.int64()),
    *_CASE_TEXTS,
    ("exit_code", pa.int64()),
    ("duration", pa.float64()),
    ("cpu_time", pa.float64()),
    ("memory_mb", pa.float64()),
    ("compile_duration", pa.float64()),
    ("compile_stderr", pa.string()),
]
_CASE_SCHEMA = pa.schema(_CASE_COLUMNS)


def sample_table(samples: RunSamples) -> pa.Table:
    """A row per sample, as in the file; None for unknown values.

    ``accepted`` and ``pass_ratio`` are None for a sample without a verdict.
    """
    return pa.Table.from_batches(_sample_batches(samples), schema=_SCHEMA)


def case_table(run: FinishedRun) -> pa.Table:
    """A row per recorded case; none if the run recorded none.

    Raises:
        OutputError: The record of cases is invalid.
    """
    rows = ({"run": run.record.run, **case.model_dump(mode="json")} for case in run.cases())
    return pa.Table.from_batches(_batches(rows, _CASE_SCHEMA), schema=_CASE_SCHEMA)


def write(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write all samples into ``samples.parquet``; yields the name."""
    name = "samples.parquet"
    with folder.replacing(name, "wb") as file, pq.ParquetWriter(file, _SCHEMA) as parquet:
        for batch in _sample_batches(samples):
            parquet.write_batch(batch)
    yield name


def _sample_batches(samples: RunSamples) -> Iterator[pa.RecordBatch]:
    members = chain.from_iterable(samples.datasets.values())
    return _batches((_sample_row(samples, member) for member in members), _SCHEMA)


def _batches(rows: Iterator[_Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while batch := list(islice(rows, _BATCH)):
        yield pa.RecordBatch.from_pylist(batch, schema=schema)


def _sample_row(samples: RunSamples, sample: Sample) -> _Row:
    generation, verdict = sample.generation, sample.verdict
    values = {**generation.model_dump(mode="json"), **verdict.model_dump(mode="json")}
    judged = verdict.judged
    return {
        **{name: values.get(name) for name in _SCHEMA.names},
        "run": samples.record.run,
        "model": samples.model,
        "prompt": sample.problem.prompt,
        "accepted": verdict.accepted if judged else None,
        "pass_ratio": verdict.pass_ratio if judged else None,
        "error_breakdown": {NOT_RUN: 0, **verdict.error_breakdown},
        "generation_error": generation.error,
    }
