"""Terminal output of a run: live progress (plain lines without a terminal), summary table."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from services.cli.console import display, plain_table, say, shown
from shared import artifacts
from shared.analysis.catalogue import MetricInfo, metrics_of
from shared.analysis.statistics import Metrics
from shared.finished_run import FinishedRun
from shared.run_record import OutageReport, RunnerReport, RunPlan, RunRecord, WandbRecord
from shared.schemas import SampleId
from shared.statuses import FinalStatus, TokenSource

_LINE_EVERY = 5.0
# In a container: where the page is published, and the command that copies FOLDER to the host.
PAGE_VARIABLE = "PLUMBLINE_PAGE"
COPY_VARIABLE = "PLUMBLINE_COPY"


@dataclass
class _Tally:
    """Samples of one data set: each counts once, with its latest verdict."""

    planned: frozenset[SampleId]
    generated: set[SampleId] = field(default_factory=set)
    statuses: dict[SampleId, FinalStatus] = field(default_factory=dict)

    def add(self, sample: SampleId, status: FinalStatus | None = None) -> None:
        """Count a completion, or a verdict; samples that are not planned are left out."""
        if sample in self.planned and status is None:
            self.generated.add(sample)
        elif sample in self.planned and status is not None:
            self.statuses[sample] = status

    def count(self, status: FinalStatus) -> int:
        return sum(latest is status for latest in self.statuses.values())


class ProgressDisplay:
    """Shows generated, judged and accepted samples per data set, the rate and the time left."""

    def __init__(self, console: Console, made: str = "generated") -> None:
        """``made`` is the word for completions that are there: they may be recorded ones."""
        self._console, self._made = console, made
        self._tallies: dict[str, _Tally] = {}
        self._live: Live | None = None
        self._began = time.monotonic()
        self._judged_before = 0
        self._last_line, self._last_text = 0.0, ""
        self._outages: Sequence[OutageReport] = ()
        self._port_file: Path | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._table, console=self._console, refresh_per_second=5
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._port_file = None
        if self._live:
            self._live.stop()
        elif kind is None:
            self._line(last=True)

    def planned(self, plan: RunPlan) -> None:
        self._tallies = {
            d.name: _Tally(frozenset(SampleId(d.name, *sample) for sample in d.owed))
            for d in plan.datasets
        }

    def page_at(self, port_file: Path) -> None:
        """Show the address of the live page as soon as its port is in ``port_file``."""
        self._port_file = port_file

    def resumed(
        self, generated: Sequence[SampleId], judged: Mapping[SampleId, FinalStatus]
    ) -> None:
        """Start the clock: verdicts of earlier sessions do not count for the rate."""
        for sample in generated:
            self._tallies[sample.dataset].add(sample)
        for sample, status in judged.items():
            self._tallies[sample.dataset].add(sample, status)
        self._began = time.monotonic()
        self._judged_before = self._judged()
        if generated:
            self.note(f"resuming: {len(generated)} {self._made}, {len(judged)} judged")

    def generated(self, sample: SampleId) -> None:
        self._tallies[sample.dataset].add(sample)
        self._line()

    def judged(self, sample: SampleId, status: FinalStatus) -> None:
        self._tallies[sample.dataset].add(sample, status)
        self._line()

    def waits(self, outages: Sequence[OutageReport]) -> None:
        """Show no time left while the run waits for a service."""
        self._outages = outages

    def report(self) -> RunnerReport:
        """The report for the page, which shows the same time left."""
        _, left = self._speed()
        return RunnerReport(at=time.time(), seconds_left=left, outages=list(self._outages))

    def note(self, text: str) -> None:
        say(text, "yellow", self._console)

    def _judged(self) -> int:
        return sum(len(tally.statuses) for tally in self._tallies.values())

    def _speed(self) -> tuple[float, float | None]:
        """Samples a second in this session, and the seconds left, if they can be estimated."""
        judged, seconds = self._judged(), time.monotonic() - self._began
        rate = (judged - self._judged_before) / seconds if seconds > 0 else 0.0
        left = sum(len(tally.planned) for tally in self._tallies.values()) - judged
        return rate, left / rate if rate and not self._outages else None

    def _pace(self) -> str:
        seconds, (rate, left) = time.monotonic() - self._began, self._speed()
        if self._outages:
            return f"{seconds:.0f} s, waiting"
        if left is None:
            return f"{seconds:.0f} s"
        return f"{seconds:.0f} s, {rate:.1f} samples/s, {_clock(left)} left"

    def _caption(self) -> str:
        page = os.environ.get(PAGE_VARIABLE)
        if self._port_file is not None:
            with suppress(OSError):
                page = f"http://127.0.0.1:{self._port_file.read_text().strip()}/"
        return f"{self._pace()}\nlive page: {page}" if page else self._pace()

    def _table(self) -> Table:
        headings = ("data set", self._made, "judged", "accepted so far")
        table = plain_table(headings, ["data set"])
        table.caption, table.caption_justify = self._caption(), "left"
        for name, tally in self._tallies.items():
            total = len(tally.planned)
            counts = (f"{len(done)}/{total}" for done in (tally.generated, tally.statuses))
            table.add_row(shown(name), *counts, _accepted(tally))
        return table

    def _line(self, *, last: bool = False) -> None:
        if self._live or (not last and time.monotonic() - self._last_line < _LINE_EVERY):
            return
        parts = [
            f"{name}: {self._made} {len(t.generated)}/{len(t.planned)}, "
            f"judged {len(t.statuses)}/{len(t.planned)}, accepted {t.count(FinalStatus.SUCCESS)}"
            for name, t in self._tallies.items()
        ]
        text = "; ".join(parts)
        if text and text != self._last_text:
            say(f"{text} ({self._pace()})", console=self._console)
        self._last_line, self._last_text = time.monotonic(), text


def print_summary(run: FinishedRun) -> None:
    """Print the main metrics, one column per data set, and the folder of the artifacts."""
    display("", _summary_table(run))
    record = run.record
    display("")
    copy = os.environ.get(COPY_VARIABLE)
    where = "copy the artifacts by" if copy else f"artifacts in {record.output}"
    judged = f"{record.samples_judged} of {record.samples} samples judged"
    say(f"{judged} in {record.active_seconds:.1f} s; {where}")
    if copy:
        say(f"  {copy.replace('FOLDER', record.output)}")
    if page := os.environ.get(PAGE_VARIABLE):
        say(f"page of all runs: {page}")
    elif run.folder.exists(artifacts.REPORT):
        page = f"{run.folder.shown.rstrip('/')}/{artifacts.REPORT}"
        say(f"its page: {page}; `plumb view` shows all runs")
    if limit := record.config.data.limit:
        part = f"a part of the data: the first {limit} problems of each set (data.limit)"
        say(part, "yellow")
    if stopped := record.stopped:
        say(f"{stopped.described}; no baseline", "yellow")
    sources = record.output_tokens_from
    if counted := sources.get(TokenSource.TOKENIZER):
        name = record.tokenizer.name if record.tokenizer else "a tokenizer"
        say(f"output tokens of {counted} samples counted by us, with {name}")
    if estimated := sources.get(TokenSource.ESTIMATE):
        say(f"output tokens of {estimated} samples estimated from their length")
    for name, tests in (record.certificates or {}).items():
        if tests.why_not:
            line = f"{name}: not corrected for its tests: {tests.why_not}"
            say(line, "yellow")
    _print_canaries(record)
    _print_wandb(record.wandb)


def _summary_table(run: FinishedRun) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(shown(run.name), overflow="fold", style="bold")
    for name in run.summary:
        table.add_column(shown(name), justify="right", overflow="fold")
    summaries = list(run.summary.values())
    for metric in metrics_of(name for metrics in summaries for name in metrics):
        rare, key = metric.only_if, metric.key
        if metric.printed and (rare is None or any(metrics.get(rare) for metrics in summaries)):
            cells = (_row_cell(metrics, metric) for metrics in summaries)
            table.add_row(f"  {metric.label}" if rare else metric.label, *cells)
        measured = any(metrics.get(key) is not None for metrics in summaries)
        if key == "accepted_at_1" or (key == "accepted_at_1_corrected" and measured):
            intervals = (metrics.get(f"{key}_ci95") for metrics in summaries)
            cells = ("{:.0%}–{:.0%}".format(*i) if isinstance(i, list) else "–" for i in intervals)
            table.add_row("  95 % interval", *cells)
    return table


def _print_wandb(wandb: WandbRecord | None) -> None:
    """Print where Weights & Biases has the results, or why it has not."""
    if wandb is None:
        return
    if where := wandb.url or wandb.sync:
        kept = "" if wandb.url else "not uploaded; to upload: "
        say(f"Weights & Biases: {kept}{where}")
    for error in filter(None, (wandb.online_error, wandb.offline_error)):
        say(f"Weights & Biases: {error}", "yellow")


def _print_canaries(record: RunRecord) -> None:
    """Print how many canary programs got the expected verdict, and each finding."""
    if record.canaries is None:
        return
    sandboxes, names = record.canaries.sandboxes, ("right", "sent", "unjudged", "unable")
    right, sent, unjudged, unable = (sum(getattr(s, name) for s in sandboxes) for name in names)
    parts = [f"{right} of {sent} canary programs got the expected verdict"]
    parts += [f"{unjudged} not judged"] if unjudged else []
    parts += [f"{unable} that the sandbox cannot run"] if unable else []
    parts += [f"{record.canaries.lost} rounds lost"] if record.canaries.lost else []
    say(", ".join(parts))
    for line in record.distrust:
        say(f"untrusted: {line}", "bold red")


def _row_cell(metrics: Metrics, metric: MetricInfo) -> str:
    # Cases that were not run count as failed.
    cut = metric.key == "pass_ratio_mean" and metrics.get("samples_cut")
    return ("≥ " if cut else "") + metric.shown(metrics.get(metric.key))


def _accepted(tally: _Tally) -> str:
    accepted, unjudged = map(tally.count, (FinalStatus.SUCCESS, FinalStatus.API_ERROR))
    judged = len(tally.statuses) - unjudged
    share = f" ({accepted / judged:.1%})" if judged else ""
    errors = f", {unjudged} api_error" if unjudged else ""
    return f"{accepted}{share}{errors}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
