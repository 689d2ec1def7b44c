"""Process of a service: main function, open files, port, background tasks."""

import asyncio
import ctypes
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from shared.errors import PlumblineError, ServiceError
from shared.files import write_text
from shared.process_environment import adapt_process
from shared.service.logs import configure_logging
from shared.service.settings import ServiceSettings, load_settings

Settings = TypeVar("Settings", bound=ServiceSettings)
Result = TypeVar("Result")
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_CANCEL_AGAIN = 0.1


def run_service(name: str, kind: type[Settings], serve: Callable[[Settings], object]) -> int:
    """Read the settings, configure the logs and serve until a signal; returns the exit code.

    A ``PlumblineError`` or ``OSError`` is printed in one line. Every other exception is a bug and
    keeps its traceback.
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
    on the heap, which cannot shrink after a burst of large answers.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc only
        mallopt(_MMAP_THRESHOLD, 128 * 1024)


def raise_file_limit(wanted: int) -> int:
    """Raise the soft limit of open files to ``wanted`` if the hard one permits it.

    Returns the limit, ``wanted`` at most.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def free_port() -> int:
    """Return a loopback port that is free at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def announce_port(port: int) -> None:
    """Write the bound port to the file that ``PLUMBLINE_PORT_FILE`` names."""
    if port_file := os.environ.get("PLUMBLINE_PORT_FILE"):
        write_text(Path(port_file), f"{port}\n")


# Background tasks


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until all are done, whatever their results and errors.

    Before Python 3.12 a Redis command may swallow a cancellation, so it is repeated.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN)


async def with_watch(
    work: Callable[[], Awaitable[Result]], watch: Callable[[], Awaitable[None]]
) -> Result:
    """Run ``work`` until it ends, or until ``watch`` raises."""
    working, watching = asyncio.ensure_future(work()), asyncio.ensure_future(watch())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        return await working
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
