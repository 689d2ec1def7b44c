"""Recorded completions, and the JSON lines they come in."""

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import fsspec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from shared.errors import DataError
from shared.schemas import describe


class RecordedCompletion(BaseModel):
    """One answer of a model, recorded elsewhere; fields that are not listed here are ignored.

    ``gen_time`` is in seconds. ``dataset`` is None where the file does not say, and the
    ``problem_id`` alone has to do.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    problem_id: str = Field(min_length=1, validation_alias=AliasChoices("problem_id", "task_id"))
    completion: str = Field(validation_alias=AliasChoices("completion", "response"))
    dataset: str | None = None
    sample_index: int = Field(default=0, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    prompt_tokens: int | None = Field(default=None, ge=0)
    gen_time: float | None = Field(default=None, ge=0)
    finish_reason: str | None = None


def read_completions(path: str) -> Iterator[RecordedCompletion]:
    """Read a JSONL file of completions (gzip where the name ends in ``.gz``), line by line.

    Args:
        path: A local path or any fsspec URL.

    Raises:
        DataError: While iterating: the file or a line cannot be used; names file and line.
    """
    for number, fields in read_json_lines(path):
        try:
            yield RecordedCompletion.model_validate(fields)
        except ValidationError as error:
            raise data_error(f"{path}:{number}", f"not a completion: {describe(error)}") from None


def read_json_lines(path: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a JSONL file (gzip where the name ends in ``.gz``) with their lines.

    Lines count from 1; blank ones are skipped.

    Raises:
        DataError: While iterating: the file or a line cannot be read; names file and line.
    """
    compression = "gzip" if path.endswith(".gz") else None
    with reading(path), fsspec.open(path, "rb", compression=compression) as file:
        for number, line in _numbered_lines(path, cast(BinaryIO, file)):
            if line.strip():
                yield number, _parse_line(f"{path}:{number}", line)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn whatever a file system or a format's reader raises into a DataError naming ``path``."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise data_error(path, "there is no such file; check the path") from None
    except IsADirectoryError:
        raise data_error(path, "is a folder; name a file in it") from None
    # Every fsspec backend has exceptions of its own (of aiohttp, botocore …), which cannot all be
    # imported here; nothing but reading happens inside the block.
    except Exception as error:  # noqa: BLE001
        cause = f"{type(error).__name__}: {error}"
        raise data_error(path, f"cannot be read ({cause}); check the file and its rights") from None


def data_error(place: str, cause: str) -> DataError:
    """Make an error of one line, whatever line ends the data brings into it."""
    return DataError(" ".join(f"{place}: {cause}".splitlines()))


def _numbered_lines(path: str, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        for line in file:
            number += 1
            yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        cause = f"the gzip data is cut off or damaged ({error}); fetch the file again"
        raise data_error(f"{path}:{number + 1}", cause) from None


def _parse_line(place: str, line: bytes) -> dict[str, object]:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        cause = f"not UTF-8 (byte {error.start + 1} of the line); convert it, or name it .gz"
        raise data_error(place, f"{cause} if it is compressed") from None
    except json.JSONDecodeError as error:
        if not line.endswith(b"\n"):
            cause = "torn last line (not JSON, no newline at its end); remove it or record it again"
            raise data_error(place, cause) from None
        raise data_error(place, f"not JSON ({error.msg} at column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise data_error(place, f"JSON that cannot be used ({error})") from None
    if not isinstance(value, dict):
        raise data_error(place, f"a JSON {type(value).__name__}, where an object is needed")
    return value
