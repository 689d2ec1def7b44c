"""The commands of `plumb`, whose modules are imported when they run.

The list of commands, suggestions for misspelt names and completion of names need no import.
"""

import gc
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class LazyCommand(NamedTuple):
    """Place of a command, ``module:function``, and the first line of its docstring.

    A test compares the lines with the docstrings.
    """

    place: str
    help: str

    def load(self) -> Callable[..., None]:
        """Import the command."""
        module, _, function = self.place.partition(":")
        command: Callable[..., None] = getattr(import_module(f"services.cli.{module}"), function)
        return command


COMMANDS = {
    "run": LazyCommand(
        "run:run",
        "Generate completions for every problem, judge them and write the artifacts.",
    ),
    "judge": LazyCommand(
        "judge:judge", "Judge recorded completions; the artifacts are those of a run."
    ),
    "rejudge": LazyCommand(
        "judge:rejudge",
        "Judge the completions of a run again, with another method or other limits.",
    ),
    "reward": LazyCommand(
        "reward:reward",
        "Serve rewards for training: completions judged as in a run, over HTTP.",
    ),
    "view": LazyCommand(
        "view:view",
        "Show the finished runs below a folder in a browser, without any other service.",
    ),
    "runs": LazyCommand("runs:runs", "List the runs below a folder, the latest first."),
    "compare": LazyCommand(
        "compare:compare",
        "Compare runs with the first one: differences, confidence intervals, detectable effects.",
    ),
    "gate": LazyCommand(
        "compare:gate",
        "Check a run against rules; exit code 0: go, 1: no-go, 4: inconclusive.",
    ),
    "accept": LazyCommand(
        "accept:accept",
        "Check a run as a baseline; exit code 0: accepted, 1: not accepted, 4: with warnings.",
    ),
    "export": LazyCommand("finished:export", "Write a run's samples in another project's format."),
    "show": LazyCommand("finished:show", "Print a run's results and settings, or a sample."),
    "report": LazyCommand(
        "finished:report",
        "Write a run's page as one self-contained file, from its folder alone.",
    ),
    "doctor": LazyCommand(
        "doctor:doctor",
        "Check machine, services, sandboxes, data; exit code 0: all is well, 1: something is not.",
    ),
    "train-check": LazyCommand(
        "train_check:train_check",
        "Compare a trainer's config with a run; exit code 0: no mistake or difference, 1: some.",
    ),
    "hacking": LazyCommand(
        "hacking:hacking",
        "Find signs of reward hacking per step or run; exit code 0: none, 1: above a limit.",
    ),
}

DATA_COMMANDS = {
    "import": LazyCommand("data_files:import_", "Read a public file into DATASET.parquet."),
    "prepare": LazyCommand(
        "data:prepare",
        "Fetch, standardize, check and write all data sets, with manifests and the audit report.",
    ),
    "check": LazyCommand(
        "data:check",
        "Check that prepared sets match lock and manifests, and do not overlap.",
    ),
    "contamination": LazyCommand(
        "data:contamination",
        "Find problems in a training corpus, which may be larger than memory.",
    ),
    "certify": LazyCommand(
        "certify:certify",
        "Measure how often a set's tests reject wrong programs and accept right ones.",
    ),
    "export": LazyCommand(
        "data_files:export",
        "Write prepared sets as a trainer's files, with the prompts of a run's config.",
    ),
}


def _with_hyphens(name: str) -> str:
    """Scripts of verl's users write ``--output_dir``."""
    return name.replace("_", "-")


class LazyGroup(TyperGroup):
    """Group whose subclasses list the commands in ``lazy_commands``, in the order of the help."""

    lazy_commands: Mapping[str, LazyCommand] = {}

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - passed on to typer
        super().__init__(**settings)
        for name, command in self.lazy_commands.items():
            self.add_command(TyperCommand(name, short_help=command.help))

    def load(self, name: str) -> Any:  # noqa: ANN401 - typer does not export click's Command
        """Import a command."""
        # Imported here because structlog takes longer to import than `plumb --help` to run.
        from shared.service.logs import configure_logging

        configure_logging("plumb", "WARNING", sys.stderr)
        gc.disable()  # collections during imports find nothing to free
        try:
            command = self.lazy_commands[name].load()
        finally:
            gc.freeze()
            gc.enable()
        single = typer.Typer(add_completion=False)
        single.command(name, context_settings={"token_normalize_func": _with_hyphens})(command)
        return typer.main.get_command(single)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:  # noqa: ANN401
        name, listed, rest = super().resolve_command(ctx, args)
        lazy = name in self.lazy_commands
        return name, self.load(str(name)) if listed and lazy else listed, rest


class DataCommands(LazyGroup):
    lazy_commands = DATA_COMMANDS


class PlumbCommands(LazyGroup):
    lazy_commands = COMMANDS


app = typer.Typer(
    cls=PlumbCommands,
    name="plumb",
    help="Measure what a code model can do: generate, judge in a sandbox, count.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would take longer than all else
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


data_app = typer.Typer(
    cls=DataCommands,
    help="Prepare, check and export the data sets of a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@data_app.callback()
def data() -> None:
    """Prepare, check and export the data sets of a run."""


app.add_typer(data_app, name="data")
