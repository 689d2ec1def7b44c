"""A parquet file as the Hugging Face hub and ``datasets`` take it, with a row per sample.

All data sets share one file: ``datasets`` takes words such as ``test`` in file names for splits,
and then passes over the files without one.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from services.exports.rows import SCHEMA, row
from services.exports.samples import RunSamples
from shared.artifacts import OutputFolder

NAME = "samples.parquet"
_ROWS = 256


def write(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write all data sets into one file; yields its name."""
    with folder.replacing(NAME, "wb") as file, pq.ParquetWriter(file, SCHEMA) as parquet:
        for batch in _batches(samples):
            parquet.write_batch(batch)
    yield NAME


def _batches(samples: RunSamples) -> Iterator[pa.RecordBatch]:
    for members in samples.datasets.values():
        for start in range(0, len(members), _ROWS):
            rows = [row(samples, member) for member in members[start : start + _ROWS]]
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
