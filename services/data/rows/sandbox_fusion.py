"""A data set's rows from a SandboxFusion, in the public layouts."""

from pathlib import Path

from services.data.config import SandboxSource
from services.data.rows.base import Rows
from services.data.rows.sandbox_cache import RowCache
from services.data.rows.sandbox_client import SandboxClient
from services.data.rows.sandbox_layouts import LAYOUTS, Layout
from services.data.rows.sandbox_requests import Patience
from shared.errors import DataError
from shared.reading import data_error

PAGE = 100  # prompts a request


def rows(
    source: SandboxSource,
    layout: str,
    cache: Path,
    *,
    offline: bool,
    patience: Patience = Patience(),  # noqa: B008 -- frozen
) -> Rows:
    """The rows that the server has, each with its place, in the order of the server's ids.

    Rows that ``cache`` has come from there, and once it has all the network is not touched.

    Args:
        source: Server and data set.
        layout: "humaneval", "mbpp" or "code_contests": what the rows are to look like.
        cache: JSONL file that each row is added to as soon as it is fetched. One of another
            server, data set, split or layout is written anew.
        offline: Take all rows from the cache.
        patience: With a server that does not answer.

    Raises:
        DataError: While iterating: server, data set or cache cannot be used; one line that says
            why and what to do. What has been fetched stays in the cache.
    """
    wanted = _layout(source, layout)
    client = SandboxClient(source, wanted.dataset_class, patience)
    header = source.model_dump(include={"dataset", "split"}) | {
        "url": source.url.rstrip("/"),
        "layout": layout,
    }
    missing = f"offline, and {client.place} is not (wholly) in the cache {cache}"
    if offline and not cache.exists():
        raise DataError(f"{missing}; run once without --offline")
    with RowCache.opened(cache, header, read_only=offline) as stored:
        for key, row in stored.stored():
            yield _place(client, key), row
        if offline and not stored.complete:
            raise DataError(f"{missing}; run once without --offline")
        if not stored.complete:
            yield from _fetched(client, wanted, stored)


def _layout(source: SandboxSource, name: str) -> Layout:
    if name not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        raise DataError(f"{source.dataset}: a sandbox has no layout {name!r}; choose {known}")
    return LAYOUTS[name]


def _fetched(client: SandboxClient, layout: Layout, stored: RowCache) -> Rows:
    """The rows that ``stored`` lacks; they are in it before they are yielded."""
    _check_same(client, layout, stored)
    while page := layout.page(client, len(stored.keys), PAGE):
        for prompt in page:
            place = _place(client, prompt.id)
            if prompt.id in stored.keys:
                cause = "the server gives this id twice; mend its table, or fetch anew without"
                raise data_error(place, f"{cause} {stored.path} if it has changed")
            row = layout.row(client, place, prompt)
            stored.add(prompt.id, row)
            yield place, row
    if not stored.keys:
        cause = "the server has no problem in it; see that its table is filled"
        raise data_error(client.place, cause)
    stored.finish()


def _check_same(client: SandboxClient, layout: Layout, stored: RowCache) -> None:
    """Refuse to go on with a data set that has changed: pages are counted from its start."""
    if not stored.keys:
        return
    last = next(reversed(stored.keys))
    there = layout.page(client, len(stored.keys) - 1, 1)
    if [prompt.id for prompt in there] != [last]:
        cause = (
            f"the data set has changed since the first part of it was fetched into {stored.path}"
        )
        raise data_error(client.place, f"{cause}; remove that file and fetch all of it")


def _place(client: SandboxClient, key: int | str) -> str:
    return f"{client.place} id {key!r}"
