"""Data sets as parquet files: reading, validation, and the canonical form of prompts for hashing.

A file has one row per problem and one column per field of ``Problem``.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from shared.errors import DataError, data_error, reading
from shared.schemas import Problem, describe, parse_ground_truth, sha256

# Increment this when ``canonicalize`` changes: hashes of different versions cannot be compared.
CANONICAL_VERSION = "2"

_FENCES = ("```", "~~~")
_INDENTED = re.compile(r"(?: {4}| {0,3}\t)")
_INNER_BLANKS = re.compile(r"(?<=\S)[^\S\n]+(?=\S)")


def canonicalize(prompt: str) -> str:
    """Normalize the details of a text that editors, platforms and exports change.

    Line ends become ``\\n``, characters Unicode NFC; byte order marks, trailing blanks and blank
    lines at either end are removed. Outside code, a run of blanks within a line becomes one blank
    and a run of blank lines one line. Code, where blanks are significant, is text between fences
    (of backticks or tildes) or indented by a tab or four blanks, as in Markdown. Idempotent.
    """
    unix = prompt.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "")
    lines: list[str] = []
    fenced = False
    for line in unicodedata.normalize("NFC", unix).split("\n"):
        line = line.rstrip()
        if line.lstrip().startswith(_FENCES):
            fenced = not fenced
        elif not fenced and not _INDENTED.match(line):
            if not line and lines and not lines[-1]:
                continue
            line = _INNER_BLANKS.sub(" ", line)
        lines.append(line)
    return "\n".join(lines).strip("\n")


COLUMNS = tuple(name for name, field in Problem.model_fields.items() if field.is_required())
# Columns that a file may lack; values that are not text are ignored.
OPTIONAL_COLUMNS = tuple(name for name in Problem.model_fields if name not in COLUMNS)
SOLUTIONS = "solutions"
"""Column of a prepared file with reference solutions: JSON, a list of ``language`` and ``code``."""
SCHEMA = pa.schema([(name, pa.string()) for name in (*COLUMNS, *OPTIONAL_COLUMNS)])
# A ground truth may have 20 MB: small batches limit memory and stay below Arrow's 2 GB.
_BATCH_ROWS = 4


# (dataset, problem_id) -> place of its first row
_Seen = dict[tuple[str, str], str]


def read_dataset(path: str, prompt_key: str = "prompt") -> list[Problem]:
    """Read one parquet file, a local path or any fsspec URL.

    The prompt may be in verl's chat format; then the last user message is used.

    Args:
        path: The file.
        prompt_key: The column of the prompt; with another column, ``prompt`` may be missing.

    Raises:
        DataError: The file or a row cannot be used; the message is one line with file, row (from
            1), problem and cause.
    """
    return _read_file(path, {}, prompt_key)


def read_datasets(paths: Sequence[str], prompt_key: str = "prompt") -> list[Problem]:
    """Read several parquet files, or folders of them (``*.parquet``, sorted by name).

    ``prompt_key`` is as for ``read_dataset``.

    Raises:
        DataError: As ``read_dataset``, or two files hold the same problem of the same data set.
    """
    if not paths:
        raise DataError("no data set given; name at least one parquet file or folder")
    seen: _Seen = {}
    files = [file for path in paths for file in parquet_files(path)]
    return [problem for file in files for problem in _read_file(file, seen, prompt_key)]


def parquet_files(path: str) -> list[str]:
    """List the parquet files of a folder, sorted by name; for any other path, the path itself.

    Raises:
        DataError: The folder has no parquet file.
    """
    with reading(path):
        fs, root = fsspec.core.url_to_fs(path)
        if not fs.isdir(root):
            return [path]
        entries = fs.ls(root, detail=True)
    # To fsspec a link is neither file nor directory, and a Kubernetes volume consists of links.
    found = [entry["name"] for entry in entries if entry["type"] != "directory"]
    names = sorted(PurePosixPath(name).name for name in found)
    files = [f"{path.rstrip('/')}/{name}" for name in names if name.endswith(".parquet")]
    if not files:
        raise data_error(path, "the folder has no *.parquet; name another folder or a file")
    return files


def check_exists(path: str) -> None:
    """Refuse a file or folder that is not there, before anything that needs it starts.

    Raises:
        DataError: It is not there, or its filesystem does not answer.
    """
    with reading(path):
        fs, place = fsspec.core.url_to_fs(path)
        fs.info(place)


def row_group_names(path: str) -> list[list[tuple[str, str]]]:
    """List data set and id of every problem of a file, by row group; reads no tests.

    Raises:
        DataError: The file cannot be read, or lacks a column.
    """
    with reading(path), fsspec.open(path, "rb") as file:
        try:
            parquet = pq.ParquetFile(file)
        except pa.ArrowInvalid as error:
            raise data_error(path, f"not a parquet file ({error}); check the file") from None
        _check_names(path, parquet.schema_arrow, _columns("prompt"))
        _check_types("prompt", path, parquet.schema_arrow)
        groups: list[list[tuple[str, str]]] = []
        for group in range(parquet.num_row_groups):
            rows = parquet.read_row_group(group, columns=["dataset", "problem_id"]).to_pylist()
            groups.append([(row["dataset"], row["problem_id"]) for row in rows])
    return groups


def read_row_group(path: str, group: int) -> Iterator[Problem | DataError]:
    """Yield the problems of one row group, and an error in place of a row that cannot be used.

    Raises:
        DataError: While iterating: the file cannot be read.
    """
    check = partial(_check_types, "prompt")
    rows = parquet_rows(path, COLUMNS, OPTIONAL_COLUMNS, check, row_groups=[group])
    for row, values in rows:
        try:
            yield _problem(f"{path}: row {row} of row group {group}", values, "prompt")
        except DataError as error:
            yield error


def python_solutions(paths: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield data set, problem and first Python reference solution of files and folders.

    Raises:
        DataError: While iterating: a file cannot be read.
    """
    for path in (file for given in paths for file in parquet_files(given)):
        for _, values in parquet_rows(path, ("dataset", "problem_id"), (SOLUTIONS,)):
            try:
                found = json.loads(values.get(SOLUTIONS) or "[]")
                first = next(one["code"] for one in found if one["language"] == "python")
            except (ValueError, TypeError, KeyError, StopIteration):
                continue
            yield values["dataset"], values["problem_id"], first


def _read_file(path: str, seen: _Seen, prompt_key: str) -> list[Problem]:
    problems = []
    columns = _columns(prompt_key)
    rows = parquet_rows(path, columns, OPTIONAL_COLUMNS, partial(_check_types, prompt_key))
    for row, values in rows:
        place = f"{path}: row {row}"
        problem = _problem(place, values, prompt_key)
        key = (problem.dataset, problem.problem_id)
        if key in seen:
            cause = f"duplicate problem {_name(values)}, also in {seen[key]}; keep one of them"
            raise data_error(place, cause)
        seen[key] = place
        problems.append(problem)
    if not problems:
        raise data_error(path, "the data set is empty; prepare it again")
    return problems


def parquet_rows(
    path: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    check_types: Callable[[str, pa.Schema], None] | None = None,
    *,
    row_groups: Sequence[int] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the selected columns of a parquet file's rows, counted from 1.

    Args:
        path: A local path or any fsspec URL.
        columns: Names of the required columns.
        optional: Names of columns to yield if the file has them.
        check_types: Called with path and schema before the first row; raises to reject the schema.
        row_groups: The row groups to read, by number; None for all.

    Raises:
        DataError: While iterating: the file cannot be read or lacks a column.
    """
    with reading(path), fsspec.open(path, "rb") as file:
        try:
            parquet = pq.ParquetFile(file)
        except pa.ArrowInvalid as error:
            raise data_error(path, f"not a parquet file ({error}); check the file") from None
        schema = parquet.schema_arrow
        _check_names(path, schema, columns)
        if check_types is not None:
            check_types(path, schema)
        names = [*columns, *(name for name in optional if name in schema.names)]
        row = 0
        groups = None if row_groups is None else list(row_groups)
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names):
            for index in range(batch.num_rows):
                row += 1
                with reading(f"{path}: row {row}"):
                    values = {name: batch.column(name)[index].as_py() for name in names}
                yield row, values


def _columns(prompt_key: str) -> list[str]:
    return list(dict.fromkeys(prompt_key if name == "prompt" else name for name in COLUMNS))


def _check_names(path: str, schema: pa.Schema, columns: Sequence[str]) -> None:
    for name in columns:
        if name not in schema.names:
            present = ", ".join(schema.names)
            raise data_error(path, f"required column {name!r} is missing; it has: {present}")
        if schema.names.count(name) > 1:
            raise data_error(path, f"two columns {name!r}; rename one of them")


def _check_types(prompt_key: str, path: str, schema: pa.Schema) -> None:
    for name in _columns(prompt_key):
        kind = schema.field(name).type
        if not (_is_text(kind) or (name == prompt_key and _is_chat(kind))):
            cause = f"column {name!r} has type {kind} instead of string; convert it"
            raise data_error(path, cause)


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    # A column of nulls passes here, because the error about its first row is clearer.
    is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(check(value) for check in (*is_text, pa.types.is_null))


def _is_chat(kind: pa.DataType) -> bool:
    if not isinstance(kind, pa.ListType | pa.LargeListType):
        return False
    message = kind.value_type
    return isinstance(message, pa.StructType) and {"role", "content"} <= {f.name for f in message}


def _problem(place: str, values: dict[str, Any], prompt_key: str) -> Problem:
    missing = [name for name in _columns(prompt_key) if values[name] is None]
    if missing:
        raise data_error(
            place, f"{_name(values)} has null in {missing[0]!r}; every value is required"
        )
    values = _with_prompt(place, values, prompt_key)
    try:
        problem = Problem.model_validate(values)
        # Not Problem.tests, which would cache the parsed tests in addition to their text.
        parse_ground_truth(problem.ground_truth)
    except ValidationError as error:
        raise data_error(place, f"{_name(values)}: {describe(error)}") from None
    except ValueError as error:
        cause = f"{_name(values)}: ground_truth cannot be used ({error}); prepare the data again"
        raise data_error(place, cause) from None
    return problem


def _with_prompt(place: str, values: dict[str, Any], prompt_key: str) -> dict[str, Any]:
    """Select the fields of a problem, with its prompt as text."""
    prompt = values[prompt_key]
    if isinstance(prompt, list):
        prompt = _last_user_message(place, values, prompt)
    fields = {name: values[name] for name in COLUMNS if name != "prompt"} | {"prompt": prompt}
    optional = {name: values.get(name) for name in OPTIONAL_COLUMNS}
    fields |= {name: value for name, value in optional.items() if isinstance(value, str)}
    if prompt_key != "prompt":  # the hash in the file is of another text
        fields["prompt_sha256"] = sha256(canonicalize(prompt))
    return fields


def _last_user_message(
    place: str, values: dict[str, Any], messages: list[dict[str, Any] | None]
) -> str:
    for message in reversed(messages):
        if message is not None and message["role"] == "user":
            if isinstance(message["content"], str):
                return message["content"]
            break
    cause = f"{_name(values)}: its chat prompt has no user message with text"
    raise data_error(place, f"{cause}; add one")


def _name(values: Mapping[str, Any]) -> str:
    return f"{values['dataset']!r}/{values['problem_id']!r}"
