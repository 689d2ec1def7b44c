"""Implementation and output of the `plumb data` commands.

Separate from their signatures, because the libraries that compare texts take seconds to import,
which other commands avoid.
"""

import json
import math
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from services.cli.display import printable, stdout_console
from services.cli.verification import SolutionJudge
from services.data.check import check
from services.data.config import PrepareConfig, families_of
from services.data.contamination.check import check_contamination
from services.data.contamination.index import Part
from services.data.contamination.report import ContaminationReport
from services.data.manifests import replace_text
from services.data.overlap.pairs import Overlap
from services.data.prepare.audit import describe_overlap
from services.data.prepare.pipeline import OVERLAPS, Prepared, prepare
from services.data.records import NO_PROBLEM, ProblemText, read_records, text_of
from shared.config_files import load_document, validate_document
from shared.datasets import parquet_files
from shared.errors import ConfigError, FindingsError, data_error

_SHOWN = 20


def prepare_sets(
    config: str | None,
    overrides: Sequence[str],
    *,
    offline: bool,
    allow: str | None,
    verify_solutions: bool,
) -> None:
    """Prepare the data sets of a config file.

    Raises:
        ConfigError: The config cannot be used.
        DataError: A source cannot be used.
        FindingsError: Data sets overlap.
    """
    settings = _load(config, overrides, allow)
    console = stdout_console()
    verifier = SolutionJudge(Path(settings.raw) / "solutions", settings.verify)
    with DataProgress(console) as progress:
        prepared = prepare(
            settings,
            progress,
            offline=offline,
            verifier=verifier if verify_solutions else None,
            commands=_commands(config, overrides, verify_solutions=verify_solutions),
        )
    print_audit(console, prepared)
    print_overlaps(console, prepared.audit.overlaps, _SHOWN)
    if prepared.audit.overlaps:
        raise FindingsError(
            f"{len(prepared.audit.overlaps)} pairs of problems of different sets overlap; see "
            f"{prepared.report} and {OVERLAPS} next to it, then remove or review them "
            "(--allow FILE)"
        )


def check_sets(files: Sequence[str], config: str | None, allow: str | None) -> None:
    """Check prepared files, or those of a config file with their manifests.

    Raises:
        ConfigError: The config cannot be used.
        DataError: A file cannot be read.
        FindingsError: Files differ from lock or manifests, or data sets overlap.
    """
    families: Mapping[str, str] = {}
    if files:
        allow = allow or (None if config is None else _load(config, (), None).allow)
        paths, manifests = _files(files), None
    else:
        settings = _load(config, (), allow)
        allow, manifests = settings.allow, settings.manifests
        paths = [f"{settings.output}/{name}.parquet" for name in settings.datasets]
        families = families_of(settings.datasets)
    checked = check(paths, manifests, allow, families)
    for line in (*checked.differences, *checked.findings):
        print(printable(line))
    print_overlaps(stdout_console(), checked.reviewed.open)
    for stale in checked.reviewed.stale:
        print(f"reviewed, but no longer found: {stale.a} and {stale.b}")
    print(
        f"{checked.problems:,} problems of {len(paths)} sets: {len(checked.differences)} "
        f"differences, {len(checked.reviewed.open)} overlaps, "
        f"{len(checked.reviewed.allowed)} reviewed"
    )
    if not checked.ok:
        raise FindingsError("the prepared sets have differences or open overlaps; see above")


def _check_range(option: str, value: float, low: float, high: float = math.inf) -> None:
    if not low <= value <= high:
        allowed = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ConfigError(f"{option} {value:g}: must be {allowed}")


def check_corpus(
    data: Sequence[str],
    against: Sequence[str],
    *,
    size: int,
    min_share: float,
    processes: int | None,
    output: str | None,
) -> None:
    """Search a training corpus for the problems of prepared files.

    Raises:
        ConfigError: An option is out of range.
        DataError: A file cannot be read.
        FindingsError: The corpus contains problems.
    """
    _check_range("--ngram", size, low=2)
    _check_range("--min-share", min_share, low=0, high=1)
    _check_range("--processes", 1 if processes is None else processes, low=1)
    problems = [problem for file in _files(data) for problem in _texts(file)]
    console = stdout_console()
    with DataProgress(console) as progress:
        report = check_contamination(
            problems,
            against,
            size=size,
            min_share=min_share,
            processes=processes or len(os.sched_getaffinity(0)),
            progress=progress.bytes_read,
        )
    if output is not None:
        replace_text(output, json.dumps(report.document(), ensure_ascii=False, indent=2) + "\n")
    print_contamination(console, report)
    found = sum(one.contaminated for one in report.problems)
    if found:
        raise FindingsError(f"{found} of {len(problems)} problems are in the training corpus")


def _texts(file: str) -> list[ProblemText]:
    problems = [text_of(record) for record in read_records(file)]
    if not problems:
        raise data_error(file, NO_PROBLEM)
    return problems


def _load(config: str | None, overrides: Sequence[str], allow: str | None) -> PrepareConfig:
    if config is None:
        raise ConfigError("no data sets to prepare: add --config configs/data.yaml")
    settings = validate_document(PrepareConfig, load_document(config, overrides))
    return settings.model_copy(update={"allow": allow or settings.allow})


def _files(paths: Sequence[str]) -> list[str]:
    return [file for path in paths for file in parquet_files(path)]


def _commands(config: str | None, overrides: Sequence[str], *, verify_solutions: bool) -> list[str]:
    """List the commands that reproduce the data."""
    given = ["plumb", "data", "prepare", "--config", str(config)]
    flag = ["--verify-solutions"] if verify_solutions else []
    again = shlex.join([*given, *flag, *(overrides)])
    return [again, f"plumb data check --config {shlex.quote(str(config))}"]


# Output

_LINE_EVERY = 5.0  # seconds
_TASK = TaskID(0)


class DataProgress:
    """Progress display: a live line per step in a terminal, else one line when a step ends.

    Other output may use the terminal between steps.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._step = ""
        self._count = 0
        self._shown = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def begin(self, step: str) -> None:
        self._step, self._count, self._shown = step, 0, time.monotonic()
        if self._console.is_terminal:
            self._bar = Progress(
                SpinnerColumn(finished_text="✓"),
                TextColumn("{task.description}", markup=False),
                TextColumn("{task.fields[done]}", markup=False),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._bar.add_task(step, total=None, done="")
            self._bar.start()

    def advance(self) -> None:
        self._count += 1
        self._show(f"{self._count:,}")

    def end(self, result: str) -> None:
        if self._bar:
            self._bar.update(_TASK, total=1, completed=1, done=result)
            self._bar.stop()
            self._bar = None
        else:
            self._line(result)

    def bytes_read(self, done: int, total: int) -> None:
        """Show the progress of reading a corpus, a separate step measured in bytes."""
        if not self._step:
            self.begin("reading the corpus")
        share = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        if done >= total:
            self.end(share)
        else:
            self._show(share)

    def _show(self, text: str) -> None:
        if self._bar:
            self._bar.update(_TASK, done=text)
        elif time.monotonic() - self._shown > _LINE_EVERY:
            self._shown = time.monotonic()
            self._line(f"{text} …")

    def _line(self, text: str) -> None:
        self._console.print(Text(f"{self._step}: {text}"), soft_wrap=True)


def print_audit(console: Console, prepared: Prepared) -> None:
    """Print a row per data set, and the paths of report and lock."""
    table = Table(box=None, pad_edge=False)
    for heading in ("data set", "rows", "dropped", "duplicates", "problems", "tests at fault"):
        table.add_column(heading, justify="left" if heading == "data set" else "right")
    for one in prepared.audit.datasets:
        numbers = (one.rows, len(one.dropped), len(one.removed), one.problems)
        at_fault = one.problems - one.quality.get("ok", 0)
        table.add_row(one.name, *(f"{number:,}" for number in (*numbers, at_fault)))
    console.print(table)
    for path in (prepared.report, prepared.lock):
        console.print(Text(path), soft_wrap=True)


def print_overlaps(console: Console, overlaps: Sequence[Overlap], shown: int | None = None) -> None:
    """Print the first ``shown`` pairs with their similarities and excerpts, without markup."""
    for overlap in overlaps[:shown]:
        pair = f"{overlap.a.name}  <->  {overlap.b.name}: {describe_overlap(overlap)}"
        console.print(Text(printable(pair), style="red"), soft_wrap=True)
        excerpts = dict.fromkeys(filter(None, overlap.excerpts))
        for excerpt in excerpts:
            both = "both: " if len(excerpts) == 1 else ""
            console.print(Text(f"    {both}{printable(excerpt)}"), soft_wrap=True)
    if shown is not None and len(overlaps) > shown:
        console.print(f"… and {len(overlaps) - shown:,} more pairs")


def print_contamination(console: Console, report: ContaminationReport) -> None:
    """Print each problem found in the corpus, the worst first, with a row per part found."""
    found = [one for one in report.problems if one.documents]
    table = Table(box=None, pad_edge=False)
    for heading in ("problem", "part", "share", "best document", "documents"):
        table.add_column(heading, overflow="fold")
    for one in found[:_SHOWN]:
        name, documents = printable(f"{one.dataset}/{one.problem_id}"), f"{one.documents:,}"
        for part in one.parts:
            if part.hit is None:
                continue
            style = "red" if part.contaminated else ""
            where = printable(f"{part.hit.path}:{part.hit.row}")
            cells = (name, part.part, f"{part.share:.0%}", where, documents)
            table.add_row(*(Text(cell, style=style) for cell in cells))
            name = documents = ""
    if found:
        console.print(table)
    if len(found) > _SHOWN:
        console.print(f"{len(found) - _SHOWN:,} more; --output FILE has them all")
    for path in report.skipped:
        console.print(Text(f"skipped, not a corpus format: {path}", style="yellow"))
    unchecked = sum(len(one.unchecked) for one in report.problems)
    if unchecked:
        console.print(f"{unchecked:,} texts are missing or too short to check (--output FILE)")
    console.print(
        f"{report.documents:,} documents of {report.files:,} files, {report.bytes / 1e6:,.1f} MB: "
        f"{sum(one.contaminated for one in report.problems):,} of {len(report.problems):,} "
        f"problems contaminated ({_counts(report)}), {len(found):,} found"
    )


def _counts(report: ContaminationReport) -> str:
    return ", ".join(f"{report.count(part):,} by {part}" for part in Part)
