"""Commands on a finished run: `plumb show`, `report` and `export`."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from services.cli.console import plain_table, say, shown, stdout_console
from services.cli.display import print_summary
from services.cli.options import RunFolder
from services.cli.sample import ShownCases, print_sample, print_samples
from services.exports import ExportFormat, export_samples, load_samples
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.errors import ConfigError
from shared.finished_run import FinishedRun, open_run
from shared.redaction import redact
from shared.run_record import RunRecord
from shared.statuses import FinalStatus


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
        say(console, torn, "yellow")


def _print_run(console: Console, finished: FinishedRun) -> None:
    print_summary(console, finished)
    table = plain_table(["", ""], header=False)
    for name, value in _facts(finished.record).items():
        table.add_row(name, shown(str(value)))
    console.print(table)
    for dataset in finished.record.datasets:
        sha256 = dataset.sha256 if not console.is_terminal else f"{dataset.sha256[:16]}…"
        line = f"{dataset.dataset}: {dataset.problems} problems, SHA-256 {sha256}"
        say(console, line)
    if finished.record.distrust:
        text = "untrusted: fix the sandbox and judge the completions again with plumb rejudge"
        say(console, text, "yellow")
    if not finished.record.complete:
        text = "incomplete: repeat the command to judge the rest"
        say(console, text, "yellow")


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
) -> None:
    """Write a run's samples in another project's format."""
    samples, folder = load_samples(open_run(run)), OutputFolder(output)
    names = export_samples(kind, samples, folder)
    _print_files(folder, names, samples.notes)


def _print_files(folder: OutputFolder, names: Sequence[str], notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {redact(note)}", file=sys.stderr)
    for name in names:
        print(f"{folder.shown.rstrip('/')}/{name}")


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
