"""Brings a public data set into the one form that Plumbline runs on."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from services.data.ids import parse_ids
from services.data.layouts.base import Dropped, Options
from services.data.layouts.collect import collect
from services.data.layouts.registry import LayoutKind, get_layout
from services.data.rows import local
from shared.dataset_writer import write_dataset
from shared.errors import DataError
from shared.files import write_text
from shared.reading import data_error

# What `plumb data import` calls a layout.
SourceKind = LayoutKind
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
        kind: A ``LayoutKind``.
        source: The file or folder to read; see ``services.data.rows.local``.
        output: Folder for ``<dataset>.parquet``, or the file itself where it ends in ``.parquet``.
        name: Name of the data set in place of the layout's own.
        split: Split in place of the layout's own.
        ids: Numbers to select, such as ``11-210`` (MBPP).
        include_generated: Add the generated tests (CodeContests).

    Raises:
        DataError: Source, options or output cannot be used; one line that says where and why.
    """
    numbers = None if ids is None else parse_ids(ids)
    options = Options(name, split, numbers, include_generated, source=source)
    layout = get_layout(kind)
    rows = local.rows(source, layout.columns(options))
    imported, dropped = collect(source, layout.read(rows, options))
    problems = [row.problem for row in imported]
    dataset = problems[0].dataset
    _check_name(source, dataset)
    path = _output_file(output, dataset)
    write_dataset(str(path), problems)
    dropped_path = _write_dropped(path.with_suffix(".dropped.jsonl"), dropped)
    return ImportResult(path, dataset, len(problems), dropped, dropped_path)


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
