"""The commands of `plumb`, whose modules are imported when they run.

The list of commands, suggestions for misspelt names and completion of names need no import.
"""

import gc
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class LazyCommand(NamedTuple):
    """Module and function of a command."""

    module: str
    function: str

    @property
    def help(self) -> str:
        """The first paragraph of the command's docstring, read without an import."""
        source = (Path(__file__).parent / f"{self.module}.py").read_text(encoding="utf-8")
        _, _, definition = source.partition(f"\ndef {self.function}(")
        docstring = definition.split('"""', 2)[1]
        return " ".join(docstring.partition("\n\n")[0].split())

    def load(self) -> Callable[..., None]:
        """Import the command."""
        module = import_module(f"services.cli.{self.module}")
        command: Callable[..., None] = getattr(module, self.function)
        return command


def _commands(**modules: str) -> dict[str, LazyCommand]:
    """The commands by name, from the modules of their functions, in the order of the help."""
    return {
        function.rstrip("_").replace("_", "-"): LazyCommand(module, function)
        for function, module in modules.items()
    }


COMMANDS = _commands(
    run="run",
    judge="judge",
    rejudge="judge",
    reward="reward",
    view="view",
    runs="runs",
    compare="compare",
    gate="compare",
    accept="accept",
    export="finished",
    show="finished",
    report="finished",
    doctor="doctor",
    train_check="train_check",
    hacking="hacking",
)
DATA_COMMANDS = _commands(
    import_="data_files",
    prepare="data",
    check="data",
    contamination="data",
    certify="certify",
    export="data_files",
)


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

        versions = versions_of(["plumbline"])
        commit = f", commit {commit[:12]}" if (commit := git_commit()) else ""
        version = versions.get("plumbline", "of a checkout that is not installed")
        typer.echo(f"plumb {version} (Python {versions['python']}{commit})")
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
