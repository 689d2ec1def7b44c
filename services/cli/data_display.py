"""What `plumb data` shows: progress, and what came of it."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from services.cli.display import printable
from services.data.audit.report import describe_overlap
from services.data.contamination.report import ContaminationReport
from services.data.overlap.pairs import Overlap
from services.data.prepare.pipeline import Prepared

_SHOWN = 20
_LINE_EVERY = 5.0
_TASK = TaskID(0)


class DataProgress:
    """A line per step, which counts in a terminal; elsewhere a line when it is done.

    Between steps the terminal is free for others.
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
        """A step of its own, measured in bytes."""
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
    """A row per set, and where the files are."""
    table = Table(box=None, pad_edge=False)
    for heading in ("data set", "rows", "dropped", "duplicates", "problems", "tests at fault"):
        table.add_column(heading, justify="left" if heading == "data set" else "right")
    for one in prepared.audit.datasets:
        numbers = (one.rows, len(one.dropped), len(one.removed), one.problems)
        at_fault = one.problems - one.quality.get("ok", 0)
        table.add_row(one.name, *(f"{number:,}" for number in (*numbers, at_fault)))
    console.print(table)
    for path in (prepared.report, prepared.lock):
        console.print(Text(str(path)), soft_wrap=True)


def print_overlaps(console: Console, overlaps: Sequence[Overlap], shown: int | None = None) -> None:
    """Each pair (or so many) with its figures and what both say; the text of data is only text."""
    for overlap in overlaps[:shown]:
        pair = f"{overlap.a.name}  <->  {overlap.b.name}: {describe_overlap(overlap)}"
        console.print(Text(printable(pair), style="red"), soft_wrap=True)
        excerpts = dict.fromkeys(side.excerpt for side in (overlap.a, overlap.b) if side.excerpt)
        for excerpt in excerpts:
            both = "both: " if len(excerpts) == 1 else ""
            console.print(Text(f"    {both}{printable(excerpt)}"), soft_wrap=True)
    if shown is not None and len(overlaps) > shown:
        console.print(f"… and {len(overlaps) - shown:,} pairs more")


def print_contamination(console: Console, report: ContaminationReport) -> None:
    """A row per problem that was met in the corpus, the worst first, and what was not checked."""
    met = [one for one in report.problems if one.documents]
    table = Table(box=None, pad_edge=False)
    for heading in ("problem", "prompt", "solutions", "in one document", "documents", "where"):
        table.add_column(heading, overflow="fold")
    for one in met[:_SHOWN]:
        best = max(
            (part.hit for part in (one.prompt, one.solutions) if part.hit),
            key=lambda hit: hit.share,
        )
        table.add_row(
            Text(
                printable(f"{one.dataset}/{one.problem_id}"),
                style="red" if one.contaminated else "",
            ),
            f"{one.prompt.share:.0%}",
            f"{one.solutions.share:.0%}",
            f"{one.share:.0%}",
            f"{one.documents:,}",
            Text(f"{best.path}:{best.row}"),
        )
    if met:
        console.print(table)
    if len(met) > _SHOWN:
        console.print(f"{len(met) - _SHOWN:,} more; --output FILE has them all")
    for path in report.skipped:
        console.print(Text(f"not read, for it is no format of a corpus: {path}", style="yellow"))
    unchecked = sum(len(one.unchecked) for one in report.problems)
    if unchecked:
        console.print(f"{unchecked:,} texts are too short to be looked for")
    console.print(
        f"{report.documents:,} documents of {report.files:,} files, {report.bytes / 1e6:,.1f} MB: "
        f"{sum(one.contaminated for one in report.problems):,} of {len(report.problems):,} "
        f"problems contaminated, {len(met):,} met"
    )
