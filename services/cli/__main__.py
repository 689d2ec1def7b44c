"""Entry point of the command line: `plumb` and its subcommands."""

import gc
import sys
from typing import Any

import typer

from services.cli.embedded import prefork
from services.cli.lazy import LazyCommand, LazyGroup
from shared.errors import PlumblineError

_CLI = "services.cli"
# A test compares the texts with the docstrings of the commands.
_COMMANDS = {
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
    "runs": LazyCommand(
        f"{_CLI}.finished:runs", "List the finished runs below a folder, the latest first."
    ),
    "compare": LazyCommand(
        f"{_CLI}.compare:compare",
        "Compare runs with the first one: differences, confidence intervals, detectable effects.",
    ),
    "gate": LazyCommand(
        f"{_CLI}.gate:gate",
        "Check a run against rules; exit code 0: go, 1: no-go, 2: inconclusive.",
    ),
    "export": LazyCommand(
        f"{_CLI}.finished:export", "Write a run's results in another project's format."
    ),
    "show": LazyCommand(f"{_CLI}.finished:show", "Print a run's results and settings."),
    "report": LazyCommand(
        f"{_CLI}.finished:report",
        "Write a run's page as one self-contained file, from its folder alone.",
    ),
    "data": LazyCommand(f"{_CLI}.data:app", "Prepare and check the data sets of a run."),
}


class PlumbCommands(LazyGroup):
    """The commands of `plumb`, in the order of the help."""

    lazy_commands = _COMMANDS

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:  # noqa: ANN401
        if "--embedded" in args:
            # Before the command's own imports, which take as long as those of the services.
            prefork.start_early()
        return super().resolve_command(ctx, args)

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
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def plumb() -> None:
    # Without a callback typer refuses an app that has no commands of its own.
    pass


def main() -> None:
    """Run a command; a PlumblineError becomes one line on stderr and an exit code."""
    try:
        app()
    except PlumblineError as error:
        print(f"plumb: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except ModuleNotFoundError as error:
        # A service's image installs only what that service needs.
        print(
            f"plumb: this command needs {error.name!r}, which is not installed here; use an "
            "installation made with `pip install plumbline[cli]` or `make install`",
            file=sys.stderr,
        )
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
