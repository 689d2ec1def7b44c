"""The commands of `plumb`; the module of one is imported when it runs."""

import gc
import sys
from typing import Annotated, Any

import typer

from services.cli.lazy import LazyCommand, LazyGroup

_CLI = "services.cli"
# A test compares the texts with the docstrings of the commands.
COMMANDS = {
    "run": LazyCommand(
        f"{_CLI}.run:run",
        "Generate completions for every problem, judge them and write the artifacts.",
    ),
    "judge": LazyCommand(
        f"{_CLI}.judge:judge", "Judge recorded completions; the artifacts are those of a run."
    ),
    "rejudge": LazyCommand(
        f"{_CLI}.rejudge:rejudge",
        "Judge the completions of a run again, with another method or other limits.",
    ),
    "reward": LazyCommand(
        f"{_CLI}.reward:reward",
        "Serve rewards for training: completions judged as in a run, over HTTP.",
    ),
    "view": LazyCommand(
        f"{_CLI}.view:view",
        "Show the finished runs below a folder in a browser, without any other service.",
    ),
    "runs": LazyCommand(f"{_CLI}.runs:runs", "List the runs below a folder, the latest first."),
    "compare": LazyCommand(
        f"{_CLI}.compare:compare",
        "Compare runs with the first one: differences, confidence intervals, detectable effects.",
    ),
    "gate": LazyCommand(
        f"{_CLI}.gate:gate",
        "Check a run against rules; exit code 0: go, 1: no-go, 4: inconclusive.",
    ),
    "accept": LazyCommand(
        f"{_CLI}.accept:accept",
        "Check a run as a baseline; exit code 0: accepted, 1: not accepted, 4: with warnings.",
    ),
    "export": LazyCommand(
        f"{_CLI}.finished:export", "Write a run's results in another project's format."
    ),
    "show": LazyCommand(
        f"{_CLI}.finished:show", "Print a run's results and settings, or a sample."
    ),
    "report": LazyCommand(
        f"{_CLI}.finished:report",
        "Write a run's page as one self-contained file, from its folder alone.",
    ),
    "doctor": LazyCommand(
        f"{_CLI}.doctor:doctor",
        "Check machine, services, sandboxes, data; exit code 0: all is well, 1: something is not.",
    ),
    "train-check": LazyCommand(
        f"{_CLI}.train_check:train_check",
        "Compare a trainer's config with a run; exit code 0: no mistake or difference, 1: some.",
    ),
    "hacking": LazyCommand(
        f"{_CLI}.hacking:hacking",
        "Find signs of reward hacking per step or run; exit code 0: none, 1: above a limit.",
    ),
    "data": LazyCommand(f"{_CLI}.data:app", "Prepare, check and export the data sets of a run."),
}


class PlumbCommands(LazyGroup):
    """The commands of `plumb`, in the order of the help."""

    lazy_commands = COMMANDS

    def load(self, name: str) -> Any:  # noqa: ANN401 - see the overridden method
        # Imported here because structlog takes longer to import than `plumb --help` to run.
        from shared.service.logs import configure_logging

        configure_logging("plumb", "WARNING", sys.stderr)
        gc.disable()  # collections during imports find nothing to free
        try:
            return super().load(name)
        finally:
            gc.freeze()
            gc.enable()


app = typer.Typer(
    cls=PlumbCommands,
    name="plumb",
    help="Measure what a code model can do: generate, judge in a sandbox, count.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        # Imported here because the help needs none of it.
        from shared.versions import git_commit, versions_of

        found = versions_of(["plumbline"])
        commit = f", commit {commit[:12]}" if (commit := git_commit()) else ""
        version = found.get("plumbline", "of a checkout that is not installed")
        typer.echo(f"plumb {version} (Python {found['python']}{commit})")
        raise typer.Exit


@app.callback()
def plumb(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    # Without a callback typer refuses an app that has no commands of its own.
    pass
