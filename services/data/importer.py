"""Importer of one public data set: reads a layout and writes a parquet file.

A training set gets a manifest too, because its role is read from there.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import fsspec

from services.data.config import DateRange, check_name, parse_ids
from services.data.layouts import get_layout
from services.data.layouts.base import Dropped, Imported, Options
from services.data.manifests import manifest_line, write_manifest
from services.data.quality import AuditSummary
from services.data.records import writing_dataset
from services.data.rows import local
from shared.data_roles import IMPORTED, DataRole
from shared.errors import data_error
from shared.files import storage_errors
from shared.redaction import redact_address
from shared.schemas import Problem


@dataclass(frozen=True, slots=True)
class ImportResult:
    """File written by an import, rows that are no problems, and findings of the audit."""

    path: str
    dataset: str
    problems: int
    dropped: tuple[Dropped, ...]
    findings: AuditSummary


def import_dataset(
    kind: str,
    source: str,
    output: str | Path,
    *,
    name: str | None = None,
    split: str | None = None,
    ids: str | None = None,
    include_generated: bool = False,
    contest_dates: DateRange | None = None,
    role: DataRole = DataRole.EVAL,
    solutions: int = 3,
) -> ImportResult:
    """Read a data set in one of the public layouts and write it as parquet.

    Nothing is written until everything is read, so a failure leaves an earlier file untouched.

    Args:
        kind: A ``LayoutKind``.
        source: The file or folder to read; see ``services.data.rows.local``.
        output: Folder for ``<dataset>.parquet``, or the file itself if it ends in ``.parquet``.
        name: Name of the data set, overriding the layout's.
        split: Split, overriding the layout's.
        ids: Numbers to select, such as ``11-210`` (MBPP).
        include_generated: Add the generated tests (CodeContests).
        contest_dates: Days of the contests to keep (LiveCodeBench).
        solutions: Number of reference solutions kept per problem, for the check of contamination.
        role: ``TRAIN`` if models may be trained on it; said by a manifest beside the file.

    Raises:
        DataError: Source, options or output cannot be used; one line with place and cause.
    """
    options = Options(
        name=name,
        split=split,
        ids=None if ids is None else parse_ids(ids),
        contest_dates=contest_dates,
        include_generated=include_generated,
        solutions=solutions,
        source=source,
    )
    layout = get_layout(kind)
    rows = local.rows(source, layout.columns(options))
    imported, dropped = collect(source, layout.read(rows, options))
    problems = [row.problem for row in imported]
    dataset = problems[0].dataset
    try:
        check_name(dataset)
    except ValueError as error:
        raise data_error(source, str(error)) from None
    path = _output_file(str(output), dataset)
    # Between the two writes, the file is at worst an evaluation set.
    stem = path.removesuffix(".parquet")
    _delete(manifest := f"{stem}{IMPORTED}")
    with writing_dataset(path) as writer:
        for row in imported:
            writer.add(row)
    if role is DataRole.TRAIN:
        _write_manifest(manifest, source, problems)
    findings = AuditSummary()
    for problem in problems:
        findings.add(problem)
    return ImportResult(path, dataset, len(problems), dropped, findings)


def collect(
    source: str, rows: Iterable[Imported | Dropped]
) -> tuple[list[Imported], tuple[Dropped, ...]]:
    """Separate problems from dropped rows, keeping their order.

    Args:
        source: Names the data set in error messages.
        rows: The rows as the layout reads them.

    Raises:
        DataError: A row cannot be used, two rows have the same id, or there is no problem.
    """
    imported: list[Imported] = []
    dropped: list[Dropped] = []
    places: dict[str, str] = {}
    for row in rows:
        problem_id = row.problem.problem_id if isinstance(row, Imported) else row.problem_id
        if problem_id in places:
            cause = f"duplicate problem {problem_id!r}, also at {places[problem_id]}"
            raise data_error(row.place, f"{cause}; keep one of them")
        places[problem_id] = row.place
        if isinstance(row, Imported):
            imported.append(row)
        else:
            dropped.append(row)
    if not imported:
        why = f"all {len(dropped)} rows were dropped: {dropped[0].reason}" if dropped else "no rows"
        raise data_error(source, f"it has no problem ({why}); check the file and the options")
    return imported, tuple(dropped)


def _output_file(output: str, dataset: str) -> str:
    if "://" not in output:
        output = str(Path(output).expanduser())
    folder = output.rstrip("/")
    return output if output.endswith(".parquet") else f"{folder}/{dataset}.parquet"


def _write_manifest(path: str, source: str, problems: Iterable[Problem]) -> None:
    revision, url = local.revision(source), redact_address(source)
    lines = (
        manifest_line(
            problem,
            version=revision,
            source_url=url,
            revision=revision,
            licence="",
            role=DataRole.TRAIN,
        )
        for problem in problems
    )
    write_manifest(path, lines)


def _delete(path: str) -> None:
    try:
        fs, target = fsspec.core.url_to_fs(path)
        with suppress(FileNotFoundError, NotADirectoryError), storage_errors():
            if fs.exists(target):
                fs.rm_file(target)
    except (OSError, ValueError, ImportError) as error:
        raise data_error(path, f"cannot be deleted ({error}); check the folder") from None
