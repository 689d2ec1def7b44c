"""Brings a public data set into the one form that Plumbline runs on."""

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from services.data.ids import parse_ids
from services.data.sources import code_contests, humaneval, jsonl, mbpp
from services.data.sources.base import Dropped, Imported, Options, Source
from shared.completions import data_error
from shared.datasets import write_dataset
from shared.errors import DataError
from shared.files import write_text
from shared.schemas import Problem


class SourceKind(StrEnum):
    """The layouts that can be imported."""

    HUMANEVAL = "humaneval"
    MBPP = "mbpp"
    CODE_CONTESTS = "code_contests"
    JSONL = "jsonl"


_SOURCES: dict[SourceKind, Source] = {
    SourceKind.HUMANEVAL: humaneval.read,
    SourceKind.MBPP: mbpp.read,
    SourceKind.CODE_CONTESTS: code_contests.read,
    SourceKind.JSONL: jsonl.read,
}
# A data set's name becomes part of file names and metric keys.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What was written where. ``dropped_path`` is None where no row was dropped."""

    path: Path
    dataset: str
    problems: int
    dropped: tuple[Dropped, ...]
    dropped_path: Path | None


def import_dataset(
    kind: str,
    source: str,
    output: str | Path,
    *,
    name: str | None = None,
    split: str | None = None,
    ids: str | None = None,
    include_generated: bool = False,
) -> ImportResult:
    """Read a data set in one of the public layouts and write it as parquet.

    Nothing is written before all is read, so a failure leaves an earlier file as it was.

    Args:
        kind: A ``SourceKind``.
        source: The file to read, a local path or any fsspec URL; gzip where it ends in ``.gz``.
        output: Folder for ``<dataset>.parquet``, or the file itself where it ends in ``.parquet``.
        name: Name of the data set in place of the layout's own.
        split: Split in place of the layout's own.
        ids: Numbers to select, such as ``11-210`` (MBPP).
        include_generated: Add the generated tests (CodeContests).

    Raises:
        DataError: Source, options or output cannot be used; one line that says where and why.
    """
    numbers = None if ids is None else parse_ids(ids)
    options = Options(name, split, numbers, include_generated)
    problems, dropped = _read(source, _source(kind), options)
    dataset = problems[0].dataset
    _check_name(source, dataset)
    path = _output_file(output, dataset)
    write_dataset(str(path), problems)
    dropped_path = _write_dropped(path.with_suffix(".dropped.jsonl"), dropped)
    return ImportResult(path, dataset, len(problems), dropped, dropped_path)


def _source(kind: str) -> Source:
    try:
        return _SOURCES[SourceKind(kind)]
    except ValueError:
        known = ", ".join(SourceKind)
        raise DataError(f"{kind!r} is no layout that can be imported; choose {known}") from None


def _read(source: str, read: Source, options: Options) -> tuple[list[Problem], tuple[Dropped, ...]]:
    problems: list[Problem] = []
    dropped: list[Dropped] = []
    places: dict[str, str] = {}
    for row in read(source, options):
        problem_id = row.problem.problem_id if isinstance(row, Imported) else row.problem_id
        if problem_id in places:
            cause = f"duplicate problem {problem_id!r}, also at {places[problem_id]}"
            raise data_error(row.place, f"{cause}; keep one of them")
        places[problem_id] = row.place
        if isinstance(row, Imported):
            problems.append(row.problem)
        else:
            dropped.append(row)
    if not problems:
        why = f"all {len(dropped)} rows were dropped: {dropped[0].reason}" if dropped else "no rows"
        raise data_error(source, f"no problem in it ({why}); check the file and the options")
    return problems, tuple(dropped)


def _check_name(source: str, dataset: str) -> None:
    if not _NAME.fullmatch(dataset):
        allowed = "letters, digits, '.', '_' and '-'"
        raise data_error(source, f"the data set's name {dataset!r} may only have {allowed}")


def _output_file(output: str | Path, dataset: str) -> Path:
    # A Path makes "s3://" the local folder "s3:", and nobody would find the data there.
    if "://" in str(output):
        raise DataError(f"{output}: prepared data is written locally; name a folder or a file")
    path = Path(output).expanduser()
    return path if path.suffix == ".parquet" else path / f"{dataset}.parquet"


def _write_dropped(path: Path, dropped: tuple[Dropped, ...]) -> Path | None:
    """List what was dropped; a list left from an earlier import goes when there is nothing."""
    try:
        if not dropped:
            path.unlink(missing_ok=True)
            return None
        lines = [json.dumps(asdict(row), ensure_ascii=True) for row in dropped]
        write_text(path, "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise data_error(str(path), f"cannot be written ({error}); check the folder") from None
    return path
