"""Rows of Arrow files and of folders written by ``save_to_disk`` of Hugging Face datasets."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.data.rows import Rows
from shared.errors import data_error, reading
from shared.schemas import describe

_FILE_FORMAT = b"ARROW1"
# End-of-stream marker; without it a stream truncated between two batches looks complete.
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
ModelT = TypeVar("ModelT", bound=BaseModel)


class _Shard(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    # A plain name: the file must not point outside its folder.
    filename: str = Field(pattern=r"^[^/\\]+\.arrow$")


class _State(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    shards: list[_Shard] = Field(alias="_data_files")


class _Splits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    splits: list[str]


def saved_shards(path: str) -> list[str]:
    """Read the names of the shards from a ``state.json``, in order.

    Raises:
        DataError: The file cannot be read or has another form.
    """
    return [shard.filename for shard in _read(_State, path).shards]


def saved_splits(path: str) -> list[str]:
    """Read the splits, which are sibling folders, from a ``dataset_dict.json``.

    Raises:
        DataError: The file cannot be read or has another form.
    """
    return _read(_Splits, path).splits


def arrow_rows(path: str, columns: Sequence[str] | None) -> Rows:
    """Yield the rows of a local Arrow file, in the stream or the file format.

    The file is memory-mapped: its batches may be larger than memory.

    Raises:
        DataError: While iterating: the file cannot be read, or is damaged.
    """
    number = 0
    with reading(path), pa.memory_map(_local_path(path)) as file:
        for batch in _batches(path, file):
            check_columns(path, batch.schema, columns)
            names = [name for name in batch.schema.names if columns is None or name in columns]
            chosen = batch.select(names)
            # Damaged offsets would make Arrow read beyond its buffers.
            chosen.validate(full=True)
            for index in range(chosen.num_rows):
                number += 1
                place = f"{path}: row {number}"
                with reading(place):
                    fields = {name: chosen.column(name)[index].as_py() for name in names}
                yield place, fields


def check_columns(path: str, schema: pa.Schema, columns: Sequence[str] | None) -> None:
    """Check that a table's columns can be selected by name.

    Raises:
        DataError: The table has none of ``columns``, or two with the same name.
    """
    names = [name for name in schema.names if columns is None or name in columns]
    if not names:
        found = ", ".join(schema.names)
        wanted = ", ".join(columns or ())
        raise data_error(path, f"none of the columns {wanted}; it has: {found}")
    for name in names:
        if names.count(name) > 1:
            raise data_error(path, f"two columns {name!r}; rename one of them")


def _batches(path: str, file: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch]:
    try:
        if file.read(len(_FILE_FORMAT)) == _FILE_FORMAT:
            opened = pa.ipc.open_file(file)
            yield from (opened.get_batch(index) for index in range(opened.num_record_batches))
            return
        if not _has_end_marker(file):
            raise pa.ArrowInvalid("it is truncated")
        file.seek(0)
        yield from pa.ipc.open_stream(file)
    except (pa.ArrowInvalid, OSError) as error:
        cause = f"not a complete Arrow file ({error}); fetch or write it again"
        raise data_error(path, cause) from None


def _has_end_marker(file: pa.MemoryMappedFile) -> bool:
    file.seek(max(0, file.size() - len(_END_OF_STREAM)))
    return bool(file.read() == _END_OF_STREAM)


def _local_path(path: str) -> str:
    fs, local = fsspec.core.url_to_fs(path)
    if not isinstance(fs, LocalFileSystem):
        raise data_error(path, "Arrow files are memory-mapped; copy the file to a local disk")
    return str(local)


def _read(kind: type[ModelT], path: str) -> ModelT:
    with reading(path), fsspec.open(path, "rb") as file:
        text = file.read()
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise data_error(path, f"{describe(error)}; check that save_to_disk wrote it") from None
