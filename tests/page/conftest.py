"""One Chromium for all modules; one aggregator and one empty ledger per module."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright
from redis import Redis

from tests.aggregator.process import Aggregator
from tests.conftest import RedisServer
from tests.page.quiet import Watch

_EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PATIENCE_MS = 60_000  # a machine at work on other things is slow
# Pages poll every two seconds; tests wait for the next answer a tenth of that.
_POLL_OFTEN = """(() => {
  const wait = setTimeout;
  globalThis.setTimeout = (work, ms, ...given) => wait(work, ms === 2000 ? 200 : ms, ...given);
})()"""
expect.set_options(timeout=_PATIENCE_MS)

Visit = Callable[..., tuple[Page, Watch]]


def chromium() -> Path:
    executable = next(filter(None, map(shutil.which, _EXECUTABLES)), None)
    if executable is None:
        pytest.skip("no Chromium on the PATH (Debian: apt-get install chromium)")
    return Path(executable)


def launch(playwright: Playwright, *options: str) -> Browser:
    """Launch Chromium headless; its own sandbox does not work for root."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(
        executable_path=chromium(), args=[*flags, "--disable-dev-shm-usage", *options]
    )


# Playwright keeps an event loop running, which asynchronous tests of other folders cannot have, and
# of which a process can have one.
@pytest.fixture(scope="package")
def playwright() -> Iterator[Playwright]:
    chromium()
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="package")
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = launch(playwright)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def books(redis_server: RedisServer) -> Iterator[Redis]:
    """An empty Redis, this module's alone."""
    client = Redis.from_url(redis_server.url)
    client.flushall()
    yield client
    client.flushall()
    client.close()


@pytest.fixture(scope="module")
def address(
    books: Redis, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of an aggregator over ``books``."""
    aggregator = Aggregator(redis_server.url, tmp_path_factory.mktemp("aggregator"))
    yield aggregator.url
    aggregator.kill()


def new_page(
    browser: Browser, width: int = 1280, theme: Literal["light", "dark"] = "light", **options: Any
) -> tuple[Page, Watch]:
    """A page in a context of its own, and what watches it."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, locale="en-GB", **options
    )
    context.set_default_timeout(_PATIENCE_MS)
    context.add_init_script(_POLL_OFTEN)
    watch = Watch(context)
    return context.new_page(), watch


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Make a page, by default 1280 pixels wide and light, that may do nothing unexpected."""
    visits: list[tuple[Page, Watch]] = []

    def new(*arguments: Any, **options: Any) -> tuple[Page, Watch]:
        visits.append(new_page(browser, *arguments, **options))
        return visits[-1]

    yield new
    for page, _ in visits:
        page.context.close()
    errors = [error for _, watch in visits for error in watch.errors]
    assert [error for error in errors if not error.startswith("download: blob:")] == []


@pytest.fixture
def page(visit: Visit) -> Page:
    """A page as ``visit`` makes it."""
    return visit()[0]
