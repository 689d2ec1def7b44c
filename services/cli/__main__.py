"""Entry point of the command line: `plumb` and its subcommands."""

import errno
import os
import sys
from contextlib import suppress
from typing import NoReturn

_INTERRUPTED = 130


def main() -> None:
    """Run a command; a PlumblineError becomes one line on stderr and an exit code."""
    try:
        _run()
    except KeyboardInterrupt:
        _end("interrupted; repeat the command", _INTERRUPTED)


def _run() -> None:
    # Imported here so that Ctrl-C meanwhile ends with one line, too.
    from services.cli.interrupts import sigterm_as_interrupt
    from shared.errors import PlumblineError
    from shared.process_environment import adapt_process

    adapt_process()
    try:
        with sigterm_as_interrupt():
            if "--embedded" in sys.argv:
                from services.cli.embedded.environment import start_sandbox

                start_sandbox()
            from services.cli.commands import app

            try:
                app()
            except SystemExit:
                # At Python's end a failure would be no error of the command. Output may be closed.
                print(end="", flush=True)
                raise
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # typer's way to end after an interrupt
            raise KeyboardInterrupt from None
        if isinstance(end.__context__, BrokenPipeError):  # typer ends with 1, the gate's no-go
            _discard_output()
            raise SystemExit(2) from None
        raise
    except PlumblineError as error:
        _end(" ".join(str(error).split()), error.exit_code)
    except OSError as error:
        # Of standard output. A traceback's exit code would be the no-go of `plumb gate`.
        if error.errno not in (errno.ENOSPC, errno.EPIPE):
            raise
        _discard_output()
        if error.errno == errno.EPIPE:
            raise SystemExit(2) from None
        _end(f"cannot write the output: {error.strerror}; free some space and repeat it", 2)
    except ModuleNotFoundError as error:
        # A service's image installs only what that service needs.
        _end(
            f"this command needs {error.name!r}, which is not installed here; use an installation "
            "made with `pip install plumbline[cli]` or `make install`",
            2,
        )


def _discard_output() -> None:
    """Drop what Python would try to write again at its end, which would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(line: str, code: int) -> NoReturn:
    with suppress(OSError):  # the output is on a full disk, say; the exit code tells it then
        print(f"plumb: {line}", file=sys.stderr)
    if code == _INTERRUPTED:
        # Python ends by SIGINT, whatever exit code is asked for, after an interrupt that passed
        # through `exec` of a string, as the definition of a dataclass has one.
        with suppress(OSError):
            print(end="", flush=True)
        os._exit(code)
    raise SystemExit(code) from None


if __name__ == "__main__":
    main()
