"""Importer of one public data set: reads a layout and writes a parquet file.

A training set gets a manifest too, because its role is read from there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from services.data.config import LayoutKind, check_name
from services.data.layouts import LAYOUTS
from services.data.layouts.base import Dropped, Options, Record
from services.data.quality import audit_lines
from services.data.records import manifest_line, write_manifest, write_records
from services.data.rows import local
from shared.artifacts import OutputFolder
from shared.errors import data_error
from shared.manifests import IMPORTED, DataRole
from shared.redaction import redact_address


@dataclass(frozen=True, slots=True)
class ImportResult:
    """File written by an import, rows that are no problems, and lines of the audit."""

    path: str
    dataset: str
    problems: int
    dropped: tuple[Dropped, ...]
    findings: Sequence[str]


def import_dataset(
    kind: str, source: str, output: str | Path, options: Options, role: DataRole = DataRole.EVAL
) -> ImportResult:
    """Read a data set in one of the public layouts and write it as parquet.

    Nothing is written until everything is read, so a failure leaves an earlier file untouched.

    Args:
        kind: A ``LayoutKind``.
        source: The file or folder to read; see ``services.data.rows.local``.
        output: Folder for ``<dataset>.parquet``, or the file itself if it ends in ``.parquet``.
        options: Overrides of the layout's defaults.
        role: ``TRAIN`` if models may be trained on it; said by a manifest beside the file.

    Raises:
        DataError: Source, options or output cannot be used; one line with place and cause.
    """
    options = replace(options, source=source)
    layout = LAYOUTS[LayoutKind(kind)]
    rows = local.rows(source, layout.columns(options))
    records, dropped = collect(source, layout.read(rows, options))
    problems = [record.problem for record in records]
    dataset = problems[0].dataset
    try:
        check_name(dataset)
    except ValueError as error:
        raise data_error(source, str(error)) from None
    path = str(output) if "://" in str(output) else str(Path(output).expanduser())
    if not path.endswith(".parquet"):
        path = f"{path.rstrip('/')}/{dataset}.parquet"
    local.check_kept(source, [path])
    manifest = f"{path.removesuffix('.parquet')}{IMPORTED}"
    # Between the two writes, the file is at worst an evaluation set.
    folder, name = OutputFolder.of_file(manifest, IMPORTED)
    folder.remove([name])
    write_records(path, records)
    if role is DataRole.TRAIN:
        revision, url = local.revision(source), redact_address(source)
        values = {"version": revision, "revision": revision, "source_url": url, "licence": ""}
        lines = (manifest_line(problem, role=role, **values) for problem in problems)
        write_manifest(manifest, lines)
    return ImportResult(path, dataset, len(problems), dropped, audit_lines(problems))


def collect(
    source: str, rows: Iterable[Record | Dropped]
) -> tuple[list[Record], tuple[Dropped, ...]]:
    """Separate problems from dropped rows, keeping their order.

    Args:
        source: Names the data set in error messages.
        rows: The rows as the layout reads them.

    Raises:
        DataError: A row cannot be used, two rows have the same id, or there is no problem.
    """
    records: list[Record] = []
    dropped: list[Dropped] = []
    places: dict[str, str] = {}
    for row in rows:
        if (place := places.setdefault(row.problem_id, row.place)) != row.place:
            cause = f"duplicate problem {row.problem_id!r}, also at {place}; keep one of them"
            raise data_error(row.place, cause)
        if isinstance(row, Record):
            records.append(row)
        else:
            dropped.append(row)
    if not records:
        why = f"all {len(dropped)} rows were dropped: {dropped[0].reason}" if dropped else "no rows"
        raise data_error(source, f"it has no problem ({why}); check the file and the options")
    return records, tuple(dropped)
