"""Table exports, one row per sample: a Parquet file for the Hugging Face hub, and a CSV file.

All data sets share one file: ``datasets`` interprets words such as ``test`` in file names as
splits, and then ignores the other files.
"""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from services.exports.samples import RunSamples, Sample
from shared.artifacts import OutputFolder
from shared.statuses import NOT_RUN

PARQUET = "samples.parquet"
CSV = "samples.csv"
_BATCH = 256

_CASE = pa.struct(
    [
        ("case_index", pa.int64()),
        ("status", pa.string()),
        ("input", pa.string()),
        ("expected", pa.string()),
        ("actual", pa.string()),
        ("stderr", pa.string()),
    ]
)
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


def _row(samples: RunSamples, sample: Sample) -> dict[str, Any]:
    """Build the row of a sample; None for unknown values.

    ``accepted`` and ``pass_ratio`` are None for a sample without a verdict.
    """
    generation, verdict = sample.generation, sample.verdict
    values = {**generation.model_dump(mode="json"), **verdict.model_dump(mode="json")}
    judged = verdict.judged
    return {
        **{name: values.get(name) for name in _SCHEMA.names},
        "run": samples.record.run,
        "model": samples.model,
        "prompt": sample.question and sample.prompt,
        "accepted": verdict.accepted if judged else None,
        "pass_ratio": verdict.pass_ratio if judged else None,
        "error_breakdown": {NOT_RUN: 0, **verdict.error_breakdown},
        "generation_error": generation.error,
    }


def sample_table(samples: RunSamples) -> pa.Table:
    """A row per sample, as in the files."""
    return pa.Table.from_batches(_batches(samples), schema=_SCHEMA)


def write_parquet(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write all data sets into one parquet file; yields its name."""
    with folder.replacing(PARQUET, "wb") as file, pq.ParquetWriter(file, _SCHEMA) as parquet:
        for batch in _batches(samples):
            parquet.write_batch(batch)
    yield PARQUET


def _batches(samples: RunSamples) -> Iterator[pa.RecordBatch]:
    for members in samples.datasets.values():
        for start in range(0, len(members), _BATCH):
            rows = [_row(samples, member) for member in members[start : start + _BATCH]]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def write_csv(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write all data sets into one CSV file (RFC 4180, UTF-8); lists and records are JSON."""
    with folder.replacing(CSV, "wb") as file:
        # newline="" keeps the CRLF that RFC 4180 and the csv module use.
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text)
        writer.writerow(_SCHEMA.names)
        for members in samples.datasets.values():
            for member in members:
                writer.writerow(map(_cell, _row(samples, member).values()))
        text.detach()  # the folder closes the file
    yield CSV


def _cell(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
