"""Entry point of the command line: `plumb` and its subcommands."""

import sys

from services.cli.embedded import prefork
from shared.errors import PlumblineError


def main() -> None:
    """Run a command; a PlumblineError becomes one line on stderr and an exit code."""
    if "--embedded" in sys.argv:
        # Before this process's own imports, which take as long as those of the services.
        prefork.start_early()
    from services.cli.commands import app

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
