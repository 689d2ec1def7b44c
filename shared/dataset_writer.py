"""Data sets as parquet files: written a problem at a time, whole or not at all."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from shared.datasets import SCHEMA
from shared.files import atomic_write
from shared.reading import data_error
from shared.schemas import Problem

# A row group: so many rows, or so much text. A ground truth may have 20 MB.
_ROWS = 64
_CHARACTERS = 16 << 20


class DatasetWriter:
    """Adds problems to a file; made by :func:`writing_dataset`.

    Attributes:
        count: Problems that were added.
    """

    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema) -> None:
        self.count = 0
        self._writer = writer
        self._schema = schema
        self._rows: list[dict[str, str]] = []
        self._characters = 0

    def add(self, problem: Problem, **extra: str) -> None:
        """Add a problem, and what the additional columns hold for it; it is not checked again."""
        row = {name: getattr(problem, name) for name in SCHEMA.names} | extra
        self._rows.append(row)
        self._characters += sum(map(len, row.values()))
        self.count += 1
        if len(self._rows) == _ROWS or self._characters > _CHARACTERS:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, schema=self._schema))
        self._rows, self._characters = [], 0


@contextmanager
def writing_dataset(path: str, extra: Sequence[str] = ()) -> Iterator[DatasetWriter]:
    """Open a file for writing; it takes the place of an earlier one when the block has ended well.

    Args:
        path: A local path or any fsspec URL; folders are made as needed.
        extra: Names of additional columns of text.

    Raises:
        DataError: It cannot be written, or no problem was added.
    """
    schema = pa.schema([*SCHEMA, *((name, pa.string()) for name in extra)])
    try:
        fs, target = fsspec.core.url_to_fs(path)
        if fs.isdir(target):
            raise IsADirectoryError("there is a folder of that name")
        with atomic_write(fs, target, "wb") as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as parquet:
                writer = DatasetWriter(parquet, schema)
                yield writer
                writer.flush()
            if not writer.count:
                cause = "no problem to write; an empty data set could not be read again"
                raise data_error(path, cause)
    except UnicodeEncodeError as error:
        cause = f"a text has a character that UTF-8 lacks ({error.reason}); take it out"
        raise data_error(path, cause) from None
    except (OSError, ValueError, ImportError) as error:
        raise data_error(path, f"cannot be written ({error}); check the folder") from None


def write_dataset(path: str, problems: Sequence[Problem]) -> None:
    """Write a parquet file in one step: a reader sees the old file or the new.

    Args:
        path: A local path or any fsspec URL; folders are made as needed.
        problems: What to write; ids and ground truths are not checked again.

    Raises:
        DataError: There is no problem to write, or it cannot be written.
    """
    with writing_dataset(path) as writer:
        for problem in problems:
            writer.add(problem)
