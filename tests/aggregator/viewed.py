"""A folder of finished runs, watched and served in the test's process."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp.test_utils import TestClient, TestServer

from services.aggregator.app import make_folders_app
from services.aggregator.folders import RunFolders
from services.aggregator.index.database import open_database


@contextlib.asynccontextmanager
async def viewed(*folders: Path | str, index: Path | None = None) -> AsyncIterator["View"]:
    """Serve the runs below folders; the index is a temporary one by default."""
    database = open_database(index)
    watched = RunFolders([str(one) for one in folders], database)
    try:
        async with TestClient(TestServer(make_folders_app(database, watched))) as client:
            yield View(client, watched)
    finally:
        database.close()


class View:
    def __init__(self, client: TestClient, folders: RunFolders) -> None:
        self.client = client
        self.folders = folders

    def refresh(self) -> bool:
        """Search at once, however long the last search took."""
        self.folders._search_at = 0.0
        return self.folders.refresh()
