"""Commands on finished runs: `plumb runs`, `show`, `report` and `export`."""

import datetime
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from services.cli.display import print_summary, printable, stdout_console
from services.cli.options import RunFolder
from services.exports import (
    ExportFormat,
    ExportTable,
    export_cases,
    export_samples,
    load_samples,
)
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.finished_run import FinishedRun, open_run, open_runs
from shared.redaction import redact
from shared.run_record import RunRecord


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
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "finished", "model", "method", "samples", "accepted@1", "folder"):
        table.add_column(heading, overflow="fold")
    for run in sorted(found, key=_latest, reverse=True):
        table.add_row(*_row(run))
    console.print(table)
    for line in broken:
        console.print(Text(line, style="yellow"), soft_wrap=True)


def show(run: RunFolder) -> None:
    """Print a run's results and settings."""
    console = stdout_console()
    finished = open_run(run)
    print_summary(console, finished)
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in _facts(finished.record).items():
        table.add_row(name, Text(printable(str(value))))
    console.print(table)
    for dataset in finished.record.datasets:
        line = f"{dataset.dataset}: {dataset.problems} problems, SHA-256 {dataset.sha256}"
        console.print(Text(printable(line)), soft_wrap=True)
    if finished.record.distrust:
        text = "untrusted: mend the sandbox and judge the completions again with plumb rejudge"
        console.print(Text(text, style="yellow"))
    if not finished.record.complete:
        text = "incomplete: repeat the command to judge the rest"
        console.print(Text(text, style="yellow"))


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


def _row(run: FinishedRun) -> tuple[Text, ...]:
    record = run.record
    cells = (
        run.name,
        _when(record),
        record.model or "",
        record.config.judge.method,
        _samples(record),
        ", ".join(_accepted(run)),
    )
    style = "" if record.complete and not record.distrust else "yellow"
    return tuple(Text(printable(cell), style=style) for cell in (*cells, run.folder.shown))


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
    parts += ["incomplete"] if record.samples_unjudged else []
    parts += ["untrusted"] if record.distrust else []
    return " ".join(parts)


def _accepted(run: FinishedRun) -> Iterator[str]:
    """accepted@1 by data set, with its bounds if samples were not judged."""
    for name, metrics in run.summary.items():
        if (share := metrics.get("accepted_at_1")) is None:
            continue
        bounds = metrics.get("accepted_at_1_bounds") if metrics.get("api_errors") else None
        between = f" ({bounds[0]:.1%} to {bounds[1]:.1%})" if isinstance(bounds, list) else ""
        yield f"{name} {share:.1%}{between}"


def _facts(run: RunRecord) -> dict[str, object]:
    rollout = run.config.actor_rollout_ref.rollout
    return {
        "model": run.model,
        "method": run.config.judge.method,
        "temperature, n": f"{rollout.temperature}, {rollout.n}",
        "response length": rollout.response_length,
        "seed": run.seed,
        "commit": run.git_commit,
        "confirmed, flipped": f"{run.timeouts_confirmed}, {run.timeouts_flipped}",
        "infrastructure failures": run.infra_failures or "none",
    }
