"""Entry point of the command line: `plumb` and its subcommands."""

import sys

import typer

from services.cli.compare import compare
from services.cli.data import app as data
from services.cli.finished import export, report, runs, show
from services.cli.gate import gate
from services.cli.judge import judge
from services.cli.rejudge import rejudge
from services.cli.run import run
from shared.errors import PlumblineError
from shared.service.logs import configure_logging

app = typer.Typer(
    name="plumb",
    help="Measure what a code model can do: generate, judge in a sandbox, count.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(judge)
app.command()(rejudge)
app.command()(runs)
app.command()(compare)
app.command()(gate)
app.command()(export)
app.command()(show)
app.command()(report)
app.add_typer(data, name="data")


def main() -> None:
    """Run a command; a PlumblineError becomes one line on stderr and an exit code."""
    configure_logging("plumb", "WARNING", sys.stderr)
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
