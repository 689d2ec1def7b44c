"""Entry point of the command line: `plumb` and its subcommands."""

import signal
import sys

from services.cli.imports import interruptible_imports

with interruptible_imports():
    from contextlib import suppress
    from typing import NoReturn

    from services.cli.embedded import prefork
    from services.cli.interrupts import INTERRUPTED, error_line, sigterm_as_interrupt
    from shared.errors import InterruptedRunError, PlumblineError
    from shared.process_environment import adapt_process


def main() -> None:
    """Run a command; a PlumblineError becomes one line on stderr and an exit code."""
    adapt_process()
    try:
        with sigterm_as_interrupt():
            _run()
    except KeyboardInterrupt:
        _end(INTERRUPTED)
    except PlumblineError as error:
        _end(error)
    except ModuleNotFoundError as error:
        # A service's image installs only what that service needs.
        print(
            f"plumb: this command needs {error.name!r}, which is not installed here; use an "
            "installation made with `pip install plumbline[cli]` or `make install`",
            file=sys.stderr,
        )
        raise SystemExit(2) from None


def _run() -> None:
    with interruptible_imports():
        if "--embedded" in sys.argv:
            # Before this process's own imports, which take as long as those of the services.
            prefork.start_early()
        from services.cli.commands import app

    try:
        app()
    except SystemExit as end:
        if end.code == InterruptedRunError.exit_code:  # typer's way to end after an interrupt
            raise KeyboardInterrupt from None
        raise


def _end(error: PlumblineError) -> NoReturn:
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, signal.SIG_IGN)  # it ends already
    with suppress(OSError):  # the output is on a full disk, say; the exit code tells it then
        print(error_line(error), file=sys.stderr)
    raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
