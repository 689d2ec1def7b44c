"""Main function of a service: settings, logs, memory, and an exit code for each error."""

import ctypes
import sys
from collections.abc import Callable
from typing import TypeVar

from shared.errors import PlumblineError, ServiceError
from shared.process_environment import adapt_process
from shared.service.logs import configure_logging
from shared.service.settings import ServiceSettings, load_settings

Settings = TypeVar("Settings", bound=ServiceSettings)
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h


def run_service(name: str, kind: type[Settings], serve: Callable[[Settings], object]) -> int:
    """Read the settings, configure the logs and serve; returns the exit code.

    An expected error, or one of the operating system, is printed in one line. Every other exception
    is a bug and keeps its traceback.

    Args:
        name: The service's name in logs and messages.
        kind: Its settings.
        serve: Serves until a signal; it may raise ``PlumblineError`` and ``OSError``.
    """
    _return_large_blocks()
    adapt_process()
    configure_logging(name)
    try:
        settings = load_settings(kind)
        configure_logging(name, settings.log_level)
        serve(settings)
    except (PlumblineError, OSError) as caught:
        error = caught if isinstance(caught, PlumblineError) else ServiceError(str(caught))
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _return_large_blocks() -> None:
    """Fix the size from which malloc maps a block, and unmaps it as soon as it is freed.

    The C library raises it, up to 32 MiB, when such a block is freed. Bodies of megabytes then lie
    on the heap, which cannot shrink: a service kept more than twice its memory after one burst of
    large answers.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc only
        mallopt(_MMAP_THRESHOLD, 128 * 1024)
