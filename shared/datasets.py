"""Data sets as parquet files: reading, validation, and the canonical form of prompts for hashing.

A file has one row per problem and one column per field of ``Problem``. Only the prompt, an id and
the tests are required: a data set without a name is named by ``data_source`` or the file, tests may
be in verl's ``reward_model.ground_truth``, and a row without tests is one of SandboxFusion's own.

What reads a file raises :class:`DataError` if the file or a row cannot be used, or if two rows hold
the same problem; iterators raise it while iterating. The message is one line with the file, the row
(from 1), the problem and the cause.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from shared.errors import DataError, data_error, reading
from shared.reference import is_reference
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


COLUMNS = tuple(Problem.model_fields)
SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS])
SOLUTIONS = "solutions"
"""Column of a prepared file with reference solutions: JSON, a list of ``language`` and ``code``."""
WRONG = "incorrect_solutions"
"""Column with programs that are known to be wrong, in the same form."""
# Names of a problem's id, here and in other people's tables.
_IDS = ("problem_id", "task_id")
# verl's column with the ground truth in a field.
_REWARD_MODEL = "reward_model"
_FENCED = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^(?:from|import|async|def|class)\b|^@", re.MULTILINE)
# A ground truth may have 20 MB: small batches limit memory and stay below Arrow's 2 GB.
_BATCH_ROWS = 4


def read_datasets(paths: Sequence[str], prompt_key: str = "prompt") -> list[Problem]:
    """Read several parquet files, or folders of them (``*.parquet``, sorted by name).

    Paths are local, or any fsspec URL. The prompt is in the column ``prompt_key``. It may be in
    verl's chat format; then the last user message is used.
    """
    if not paths:
        raise DataError("no data set given; name at least one parquet file or folder")
    places: dict[tuple[str, str], str] = {}  # of the first row of each problem
    problems: list[Problem] = []
    for file in [file for path in paths for file in parquet_files(path)]:
        before = len(problems)
        for row, values in problem_rows(file, prompt_key):
            problem = _problem(file, row, values, prompt_key)
            place, key = f"{file}: row {row}", (problem.dataset, problem.problem_id)
            if (first := places.setdefault(key, place)) != place:
                cause = f"duplicate problem {_shown(key)}, also in {first}; keep one of them"
                raise data_error(place, cause)
            problems.append(problem)
        if len(problems) == before:
            raise data_error(file, "the data set is empty; prepare it again")
    return problems


def read_dataset(path: str) -> list[Problem]:
    """Read one parquet file, as :func:`read_datasets` does."""
    return read_datasets([path])


def parquet_files(path: str) -> list[str]:
    """List the parquet files of a folder, sorted by name; for any other path, the path itself."""
    with reading(path):
        fs, root = fsspec.core.url_to_fs(path)
        if not fs.isdir(root):
            return [path]
        entries = fs.ls(root, detail=True)
    # To fsspec a link is neither file nor directory, and a Kubernetes volume consists of links.
    files = (PurePosixPath(entry["name"]) for entry in entries if entry["type"] != "directory")
    names = sorted(file.name for file in files if file.suffix == ".parquet")
    if not names:
        raise data_error(path, "the folder has no *.parquet; name another folder or a file")
    return [f"{path.rstrip('/')}/{name}" for name in names]


def check_exists(path: str) -> None:
    """Refuse a file or folder that is not there, before anything that needs it starts."""
    with reading(path):
        fs, place = fsspec.core.url_to_fs(path)
        fs.info(place)


def row_group_names(path: str) -> list[list[tuple[str, str]]]:
    """List data set and id of every problem of a file, by row group; reads no tests."""
    with reading(path), fsspec.open(path, "rb") as file:
        metadata = _parquet(path, file).metadata
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    columns = ("dataset", "data_source", "extra_info", *_IDS)
    rows = parquet_rows(path, (), columns, partial(_check_table, "prompt"))
    names = (row_name(path, row, values) for row, values in rows)
    return [list(islice(names, size)) for size in sizes]


def read_row_group(path: str, group: int) -> Iterator[Problem | DataError]:
    """Yield the problems of one row group, and an error in place of a row that cannot be used."""
    for row, values in problem_rows(path, row_groups=[group]):
        try:
            yield _problem(path, row, values, "prompt")
        except DataError as error:
            yield error


def problem_rows(
    path: str,
    prompt_key: str = "prompt",
    further: Sequence[str] = (),
    *,
    row_groups: Sequence[int] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the columns of a data set's rows, as :func:`parquet_rows`, for :func:`problem_fields`.

    ``further`` are columns to yield beside those of the problem, if the file has them.
    """
    columns = dict.fromkeys((prompt_key, *COLUMNS, *_IDS, _REWARD_MODEL, *further))
    check = partial(_check_table, prompt_key)
    return parquet_rows(path, (), tuple(columns), check, row_groups=row_groups)


def parquet_rows(
    path: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    check_types: Callable[[str, pa.Schema], None] | None = None,
    *,
    row_groups: Sequence[int] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the selected columns of a parquet file's rows, counted from 1.

    ``optional`` columns are yielded if the file has them. ``check_types`` is called with path and
    schema before the first row, and raises to reject the schema. ``row_groups`` None means all.
    """
    with reading(path), fsspec.open(path, "rb") as file:
        parquet = _parquet(path, file)
        schema = parquet.schema_arrow
        for name in columns:
            if name not in schema.names:
                present = ", ".join(schema.names)
                raise data_error(path, f"required column {name!r} is missing; it has: {present}")
        if check_types is not None:
            check_types(path, schema)
        names = [*columns, *(name for name in optional if name in schema.names)]
        groups = list(range(parquet.num_row_groups)) if row_groups is None else list(row_groups)
        row = sum(parquet.metadata.row_group(n).num_rows for n in range(min(groups, default=0)))
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names):
            for index in range(batch.num_rows):
                row += 1
                with reading(f"{path}: row {row}"):
                    values = {name: batch.column(name)[index].as_py() for name in names}
                yield row, values


def _parquet(path: str, file: Any) -> pq.ParquetFile:  # noqa: ANN401 - fsspec's file
    try:
        return pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise data_error(path, f"not a parquet file ({error}); write or fetch it again") from None


def _check_table(prompt_key: str, path: str, schema: pa.Schema) -> None:
    """Refuse a table of which no problems can be made."""
    present = set(schema.names)
    sandboxed = present >= {"sandbox_dataset", "sandbox_id"}
    needed = {
        prompt_key: prompt_key in present,
        "problem_id": bool(present & {*_IDS, _REWARD_MODEL}),
        "ground_truth": sandboxed or bool(present & {"ground_truth", _REWARD_MODEL}),
    }
    if missing := [name for name, there in needed.items() if not there]:
        raise data_error(
            path,
            f"no column {' and no column '.join(map(repr, missing))}; it has: "
            f"{', '.join(schema.names)}; needed are {prompt_key}, problem_id and ground_truth (or "
            "reward_model.ground_truth, or sandbox_dataset and sandbox_id); other layouts become a "
            f"data set by `plumb data import LAYOUT --source {path} --output data/eval`, and "
            "`plumb data import --help` lists them",
        )
    for name in (*COLUMNS, *_IDS, _REWARD_MODEL):
        if schema.names.count(name) > 1:
            raise data_error(path, f"two columns {name!r}; rename one of them")
    fitting: dict[str, Callable[[pa.DataType], bool]] = {
        "problem_id": pa.types.is_integer,
        "ground_truth": pa.types.is_struct,
        prompt_key: _is_chat,
    }
    for name in fitting.keys() & present:
        kind = schema.field(name).type
        if not (_is_text(kind) or fitting[name](kind)):
            cause = f"column {name!r} has type {kind} instead of string; convert it"
            raise data_error(path, cause)


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    # A column of nulls passes here, because the error about its first row is clearer.
    return value in (pa.string(), pa.large_string(), pa.string_view(), pa.null())


def _is_chat(kind: pa.DataType) -> bool:
    message = getattr(kind, "value_type", None)
    return isinstance(message, pa.StructType) and {"role", "content"} <= {f.name for f in message}


def _problem(path: str, row: int, values: Mapping[str, object], prompt_key: str) -> Problem:
    fields = problem_fields(path, row, values, prompt_key)
    place, name = f"{path}: row {row}", _shown((fields["dataset"], fields["problem_id"]))
    try:
        problem = Problem.model_validate(fields)
        # Not Problem.tests, which would cache the parsed tests in addition to their text.
        parse_ground_truth(problem.ground_truth)
    except ValidationError as error:
        raise data_error(place, f"{name}: {describe(error)}") from None
    except ValueError as error:
        cause = f"{name}: ground_truth cannot be used ({error}); prepare the data again"
        raise data_error(place, cause) from None
    return problem


def problem_fields(
    path: str, row: int, values: Mapping[str, object], prompt_key: str = "prompt"
) -> dict[str, str]:
    """Return the fields of ``Problem``, as text, of a row's columns."""
    name = row_name(path, row, values)
    place = f"{path}: row {row}"
    fields = {column: _text(values.get(column)) for column in COLUMNS}
    fields |= {"dataset": name[0], "problem_id": name[1]}
    prompt, tests = values[prompt_key], ground_truth(values)
    for column, value in {prompt_key: prompt, "problem_id": name[1], "ground_truth": tests}.items():
        if value is None or (column == "problem_id" and not value):
            raise data_error(place, f"{_shown(name)} has no {column!r}; every row needs one")
    if is_reference(tests or ""):
        cause = f"{_shown(name)} names tests that are in another file; give that file with --data"
        raise data_error(place, cause)
    text = _last_user_message(place, name, prompt) if isinstance(prompt, list) else _text(prompt)
    if prompt_key != "prompt" or not fields["prompt_sha256"]:  # a hash is of the column prompt
        fields["prompt_sha256"] = sha256(canonicalize(text))
    fields["data_source"] = fields["data_source"] or name[0]
    return {**fields, "prompt": text, "ground_truth": _with_function(tests or "", text)}


def row_name(path: str, row: int, values: Mapping[str, object]) -> tuple[str, str]:
    """Data set and id of a row.

    A file whose name begins with the data source is named by the file, because it may be one of
    several splits: ``codecontests_valid`` of ``codecontests``.
    """
    source, stem = _text(values.get("data_source")), PurePosixPath(path).name
    stem = stem.removesuffix(".parquet")
    by_file = _letters(stem).startswith(_letters(source.rpartition("/")[2]))
    dataset = _text(values.get("dataset")) or (stem if by_file else source)
    with_ids = any(column in values for column in _IDS)
    fields = values if with_ids else record_fields(values.get("extra_info"))
    problem_id = next(filter(None, (_text(fields.get(column)) for column in _IDS)), "")
    return dataset, problem_id or ("" if with_ids else str(row))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _text(value: object) -> str:
    """A value of a table as text; empty for null, lists and records."""
    if isinstance(value, float):
        whole = math.isfinite(value) and value == int(value)
        return str(int(value)) if whole else "" if math.isnan(value) else str(value)
    return str(value) if isinstance(value, str | int) else ""


def record_fields(value: object) -> Mapping[str, object]:
    """The fields of a record in a table, which some tables have as JSON."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def ground_truth(values: Mapping[str, object]) -> str | None:
    """The tests of a row as JSON; without any, its name in SandboxFusion's data set."""
    tests = values.get("ground_truth")
    if tests is None:
        tests = record_fields(values.get(_REWARD_MODEL)).get("ground_truth")
    names = {name: _text(values.get(name)) for name in ("sandbox_dataset", "sandbox_id")}
    if not tests and all(names.values()):
        tests = names
    return tests if tests is None or isinstance(tests, str) else json.dumps(tests)


def _with_function(tests: str, prompt: str) -> str:
    """Add to a ``check`` function the prompt that it belongs to, if it came without."""
    if '"entry_point"' not in tests or '"prompt"' in tests:
        return tests
    if not (fields := record_fields(tests)):
        return tests
    if fenced := _FENCED.search(prompt):
        prompt = fenced[1]
    code = _CODE.search(prompt)
    return json.dumps({**fields, "prompt": prompt[code.start() :] if code else ""})


def _last_user_message(
    place: str, name: tuple[str, str], messages: list[dict[str, object] | None]
) -> str:
    of_user = (m["content"] for m in reversed(messages) if m is not None and m["role"] == "user")
    if isinstance(text := next(of_user, None), str):
        return text
    cause = f"{_shown(name)}: its chat prompt has no user message with text"
    raise data_error(place, f"{cause}; add one")


def _shown(name: tuple[str, str]) -> str:
    return f"{name[0]!r}/{name[1]!r}"
