"""Main function of a service: settings, logs, memory, and an exit code for each error."""

import sys
from collections.abc import Callable
from typing import TypeVar

from shared.errors import PlumblineError, ServiceError
from shared.process_environment import adapt_process
from shared.service.logs import configure_logging
from shared.service.memory import return_large_blocks
from shared.service.settings import ServiceSettings, load_settings

Settings = TypeVar("Settings", bound=ServiceSettings)


def run_service(name: str, kind: type[Settings], serve: Callable[[Settings], object]) -> int:
    """Read the settings, configure the logs and serve; returns the exit code.

    An expected error, or one of the operating system, is told in one line. Every other exception is
    a bug and keeps its traceback.

    Args:
        name: The service's name in logs and messages.
        kind: Its settings.
        serve: Serves until a signal; it may raise ``PlumblineError`` and ``OSError``.
    """
    return_large_blocks()
    adapt_process()
    configure_logging(name)
    try:
        settings = load_settings(kind)
        configure_logging(name, settings.log_level)
        serve(settings)
    except (PlumblineError, OSError) as error:
        found = error if isinstance(error, PlumblineError) else ServiceError(str(error))
        print(f"{name}: {found}", file=sys.stderr)
        return found.exit_code
    return 0
