"""Commands on finished runs: `plumb runs`, `show`, `report` and `export`."""

import datetime
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from services.cli.display import print_summary, printable, stdout_console
from services.cli.layout import plain_table, print_fitting, print_line
from services.cli.options import RunFolder
from services.cli.sample import ShownCases, print_sample, print_samples
from services.cli.trend import Change, changes
from services.exports import (
    ExportFormat,
    ExportTable,
    export_cases,
    export_samples,
    load_samples,
)
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.errors import ConfigError, OutputError
from shared.finished_run import FinishedRun, open_run, open_runs
from shared.redaction import redact
from shared.run_record import RunRecord
from shared.statuses import FinalStatus


def runs(
    folder: Annotated[str, typer.Argument(help="Folder that contains the runs' folders.")] = (
        "outputs"
    ),
) -> None:
    """List the runs below a folder, the latest first."""
    console = stdout_console()
    found, broken = open_runs(folder, unpublished=True)
    if not found and not broken:
        raise OutputError(f"no run in {folder}; name the folder in which runs are written")
    ordered = sorted(found, key=_latest, reverse=True)
    changed = changes(ordered)
    shown = [_shown(run, changed) for run in ordered]
    tables = [_runs_table(shown, dropped) for dropped in _DISPENSABLE]
    print_fitting(console, tables, lambda: _stacked(shown))
    for line in broken:
        print_line(console, Text(printable(line), style="yellow"))


def show(
    run: RunFolder,
    sample: Annotated[
        str | None,
        typer.Option("--sample", help="Print this sample: DATASET/PROBLEM/INDEX, or PROBLEM."),
    ] = None,
    cases: Annotated[
        ShownCases | None,
        typer.Option("--cases", help="With --sample: the first failing case (default), or all."),
    ] = None,
    status: Annotated[
        FinalStatus | None, typer.Option("--status", help="List the samples with this status.")
    ] = None,
) -> None:
    """Print a run's results and settings, or a sample."""
    if cases and sample is None:
        raise ConfigError("--cases needs --sample: it is about the cases of a sample")
    if sample is not None and status:
        raise ConfigError("--sample and --status: give one of them")
    console = stdout_console()
    finished = open_run(run)
    if sample is not None:
        print_sample(console, finished, sample, cases or ShownCases.FIRST)
    elif status:
        print_samples(console, finished, status)
    else:
        _print_run(console, finished)
    for torn in finished.skipped:
        print_line(console, Text(printable(torn), style="yellow"))


def _print_run(console: Console, finished: FinishedRun) -> None:
    print_summary(console, finished)
    table = plain_table(["", ""])
    table.show_header = False
    for name, value in _facts(finished.record).items():
        table.add_row(name, Text(printable(str(value))))
    console.print(table)
    for dataset in finished.record.datasets:
        sha256 = dataset.sha256 if not console.is_terminal else f"{dataset.sha256[:16]}…"
        line = f"{dataset.dataset}: {dataset.problems} problems, SHA-256 {sha256}"
        print_line(console, Text(printable(line)))
    if finished.record.distrust:
        text = "untrusted: mend the sandbox and judge the completions again with plumb rejudge"
        print_line(console, Text(text, style="yellow"))
    if not finished.record.complete:
        text = "incomplete: repeat the command to judge the rest"
        print_line(console, Text(text, style="yellow"))


def report(
    run: RunFolder,
    out: Annotated[
        str | None,
        typer.Option("--out", help="File to write; by default report.html in the run's folder."),
    ] = None,
) -> None:
    """Write a run's page as one self-contained file, from its folder alone."""
    # Imported here because the runner's image has no services/aggregator.
    from services.aggregator.report.page import write_report

    finished = open_run(run)
    folder, name = finished.folder, artifacts.REPORT
    if out is not None:
        folder, name = OutputFolder.of_file(out, artifacts.REPORT)
    _print_files(folder, [name], notes=write_report(finished, folder, name))


def export(
    run: RunFolder,
    kind: Annotated[ExportFormat, typer.Option("--format", help="Format of the files.")],
    output: Annotated[str, typer.Option("--output", help="Folder for the files.")],
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="The run's data sets, if they have moved."),
    ] = None,
    table: Annotated[
        ExportTable,
        typer.Option("--table", help="Rows of hf-parquet and csv: samples, or recorded cases."),
    ] = ExportTable.SAMPLES,
) -> None:
    """Write a run's results in another project's format."""
    finished, folder = open_run(run), OutputFolder(output)
    if table is ExportTable.CASES:
        names = export_cases(kind, finished, folder)
        _print_files(folder, names, finished.skipped)
        return
    samples = load_samples(finished, data or [])
    names = export_samples(kind, samples, folder)
    _print_files(folder, names, samples.notes)


def _print_files(folder: OutputFolder, names: Sequence[str], notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {redact(note)}", file=sys.stderr)
    for name in names:
        print(f"{folder.shown.rstrip('/')}/{name}")


def _latest(run: FinishedRun) -> float:
    return run.record.finished_at or run.record.started_at or 0.0


# Columns of the table of runs, and those that a narrower terminal can do without.
_COLUMNS = ("run", "finished", "model", "method", "samples", "data set", "accepted@1",
            "to the run before", "folder")  # fmt: skip
_DISPENSABLE = (frozenset[str](), frozenset({"folder"}), frozenset({"folder", "method"}))


@dataclass(frozen=True)
class _Shown:
    """A run's cells: what is said of it once, and of each data set name, accepted@1 and change."""

    facts: dict[str, Text]
    scores: list[tuple[Text, Text, Text]]


def _shown(run: FinishedRun, changed: Mapping[tuple[str, str], Change]) -> _Shown:
    record = run.record
    style = "" if record.complete and not record.distrust else "yellow"
    facts = {
        "run": run.name,
        "finished": _when(record),
        "model": record.model or "",
        "method": record.config.judge.method,
        "samples": _samples(record),
        "folder": run.folder.shown,
    }
    scores = [
        (Text(printable(name)), Text(share, style), _change(changed.get((run.folder.url, name))))
        for name, share in _accepted(run)
    ]
    return _Shown({key: Text(printable(text), style) for key, text in facts.items()}, scores)


def _runs_table(runs: Sequence[_Shown], dropped: Collection[str]) -> Table:
    """A row per data set, the first of which has what is said of the run."""
    kept = [column for column in _COLUMNS if column not in dropped]
    table = plain_table(kept)
    for run in runs:
        facts = run.facts
        for dataset, accepted, change in run.scores or [(Text(), Text(), Text())]:
            cells = {**facts, "data set": dataset, "accepted@1": accepted}
            cells["to the run before"] = change
            table.add_row(*(cells.get(column, "") for column in kept))
            facts = {}
    return table


def _stacked(runs: Sequence[_Shown]) -> Iterator[RenderableType]:
    """A run as lines: its name, its facts, its folder, and a small table of its data sets."""
    for run in runs:
        facts = run.facts
        yield Text.assemble(facts["run"], "  ", facts["finished"], style="bold")
        said = (facts[name] for name in ("model", "method", "samples"))
        for line in (Text(", ").join(one for one in said if one), facts["folder"]):
            yield Padding(line, (0, 0, 0, 2))
        if run.scores:
            table = plain_table(["data set", "accepted@1", "to the run before"])
            table.show_header = False
            for row in run.scores:
                table.add_row(*row)
            yield Padding(table, (0, 0, 0, 2))


def _change(change: Change | None) -> Text:
    """Points with their interval, green or red where that is on one side of 0."""
    if change is None:
        return Text()
    points = f"{100 * change.difference:+.1f}"
    if change.ci95 is None:
        return Text(points)
    low, high = change.ci95
    style = "green" if low > 0 else "red" if high < 0 else ""
    return Text(f"{points} ({100 * low:+.1f} … {100 * high:+.1f})", style)


def _when(record: RunRecord) -> str:
    if not record.state.published and record.finished_at is None:
        return "unfinished"
    when = datetime.datetime.fromtimestamp(record.finished_at or 0.0, datetime.UTC)
    return f"{when:%Y-%m-%d %H:%M}"


def _samples(record: RunRecord) -> str:
    judged = f"{record.samples_judged}/{record.samples}"
    if not record.state.published and record.finished_at is None:  # not counted yet
        judged = f"{record.samples}"
    parts = [judged]
    parts += [f"first {limit}"] if (limit := record.config.data.limit) else []
    parts += ["incomplete"] if record.samples_unjudged else []
    parts += ["untrusted"] if record.distrust else []
    return " ".join(parts)


def _accepted(run: FinishedRun) -> Iterator[tuple[str, str]]:
    """Data set and accepted@1, with its bounds if samples were not judged."""
    for name, metrics in run.summary.items():
        if (share := metrics.get("accepted_at_1")) is None:
            continue
        bounds = metrics.get("accepted_at_1_bounds") if metrics.get("api_errors") else None
        between = f" ({bounds[0]:.1%} to {bounds[1]:.1%})" if isinstance(bounds, list) else ""
        yield name, f"{share:.1%}{between}"


def _facts(run: RunRecord) -> dict[str, object]:
    rollout = run.config.actor_rollout_ref.rollout
    return {
        "model": run.model,
        "method": run.config.judge.method,
        "judged by": ", ".join(
            [f"rules {run.config.judge.rules}", *(one.describe() for one in run.environments[:1])]
        ),
        "temperature, n": f"{rollout.temperature}, {rollout.n}",
        "response length": rollout.response_length,
        "seed": run.seed,
        "commit": run.git_commit,
        "confirmed, flipped": f"{run.timeouts_confirmed}, {run.timeouts_flipped}",
        "infrastructure failures": run.infra_failures or "none",
    }
