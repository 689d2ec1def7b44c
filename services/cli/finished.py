"""Commands on finished runs: `plumb runs`, `show`, `report` and `export`."""

import datetime
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from services.cli.display import print_summary, printable, stdout_console
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

Run = Annotated[str, typer.Argument(help="Folder of a finished run.")]


def runs(
    folder: Annotated[str, typer.Argument(help="Folder that contains the runs' folders.")] = (
        "outputs"
    ),
) -> None:
    """List the finished runs below a folder, the latest first."""
    console = stdout_console()
    found, broken = open_runs(folder)
    if not found and not broken:
        raise OutputError(f"no finished run in {folder}; name the folder in which runs are written")
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "finished", "model", "samples", "accepted@1", "folder"):
        table.add_column(heading, overflow="fold")
    for run in sorted(found, key=_finished_at, reverse=True):
        table.add_row(*_row(run))
    console.print(table)
    for line in broken:
        console.print(Text(line, style="yellow"), soft_wrap=True)


def show(run: Run) -> None:
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
    run: Run,
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
    run: Run,
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


def _finished_at(run: FinishedRun) -> float:
    return run.record.finished_at or 0.0


def _row(run: FinishedRun) -> tuple[Text, ...]:
    record = run.record
    when = datetime.datetime.fromtimestamp(_finished_at(run), datetime.UTC)
    accepted = ", ".join(
        f"{name} {metrics['accepted_at_1']:.1%}"
        for name, metrics in run.summary.items()
        if metrics.get("accepted_at_1") is not None
    )
    samples = f"{record.samples_judged}/{record.samples}"
    samples += " untrusted" if record.distrust else ""
    cells = (run.name, f"{when:%Y-%m-%d %H:%M}", record.model or "", samples, accepted)
    return tuple(Text(printable(cell)) for cell in (*cells, run.folder.shown))


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
