"""The page and API over the finished runs below a folder, without Redis and the other services."""

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from services.aggregator.app import make_folders_app, repeat
from services.aggregator.folders import FoldersStatus, RunFolders
from services.aggregator.index.database import Database, IndexInUseError, open_database
from services.aggregator.settings import PageSettings
from shared.analysis.gate import default_policy
from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.files import cache_folder
from shared.service.access import Access
from shared.service.logs import get_logger
from shared.service.processes import with_watch
from shared.service.server import serve

log = get_logger(__name__)

_SEARCH_INTERVAL = 1.0  # seconds
_UNUSED_DAYS = 30.0


async def serve_folder(
    settings: PageSettings,
    folder: str,
    listens: Callable[[int], object],
    searched: Callable[[FoldersStatus], object],
) -> None:
    """Serve the runs below a folder until a signal to end.

    Args:
        settings: Address, token, folder of indexes.
        folder: A local path or fsspec URL; it may not exist yet.
        listens: Called with the port as soon as requests are answered.
        searched: Called in a thread when the folder was searched for the first time.

    Raises:
        OutputError: The folder's filesystem is not installed, or no index can be kept.
        ServiceError: The address cannot be bound.
    """
    root = OutputFolder(folder)
    folder = root.path if root.local else folder
    policy = default_policy(settings.gate_policy)
    database = open_index(settings.index_dir, folder)
    folders = RunFolders([folder], database, searched=searched)
    answering = asyncio.Event()
    access = Access(settings.hosts, settings.bearer, page=True)
    app = make_folders_app(database, folders, access=access, policy=policy)

    async def refresh() -> None:
        await answering.wait()
        await repeat(folders.refresh, _SEARCH_INTERVAL)

    def answers(port: int) -> None:
        listens(port)
        answering.set()

    try:
        await with_watch(partial(serve, app, settings, listens=answers), refresh)
    finally:
        folders.stop()
    database.close()


def open_index(index_dir: Path | None, folder: str) -> Database:
    """Open the index of a folder, which is kept for the next time.

    Another process that shows the same folder has the kept index; this one gets a temporary one.
    Indexes that were not used for a month are removed.

    Raises:
        OutputError: No index can be kept, there or in the folder of temporary files.
    """
    cache = cache_folder()
    place = (index_dir or cache) / "view"
    kept = place / hashlib.sha256(folder.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    try:
        database = open_database(kept)
    except IndexInUseError:
        return open_database()
    except OutputError as error:
        log.warning("the index is not kept for the next time", reason=str(error))
        return open_database()
    os.utime(kept)
    for other in place.iterdir():
        with suppress(OSError):
            if other != kept and time.time() - other.stat().st_mtime > 86400 * _UNUSED_DAYS:
                shutil.rmtree(other)
    return database
