"""The page under each address by which it is reached: names, below a path, with a token."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Playwright, Route, expect
from redis import Redis

from shared.service.access import COOKIE
from tests.aggregator.process import Aggregator
from tests.conftest import RedisServer
from tests.page import plain
from tests.page.conftest import launch, new_page

pytestmark = pytest.mark.browser

NAME, FOREIGN, TOKEN = "eval.example.org", "evil.example.org", "s3cret-token"
BELOW = "user/ada/proxy/8070/"


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """A Chromium for which both names are this machine."""
    resolve = f"MAP {NAME} 127.0.0.1, MAP {FOREIGN} 127.0.0.1"
    browser = launch(playwright, f"--host-resolver-rules={resolve}")
    yield browser
    browser.close()


@contextmanager
def aggregator(redis: RedisServer, folder: Path, **settings: str) -> Iterator[int]:
    running = Aggregator(redis.url, folder, PLUMBLINE_ALLOWED_HOSTS=NAME, **settings)
    yield int(urlsplit(running.url).port or 0)
    running.kill()


@pytest.fixture(scope="module")
def port(
    books: Redis, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("aggregator")
    plain.judge_some(plain.begin(books, "moving", str(folder / "moving")), 0, 24)
    with aggregator(redis_server, folder) as port:
        yield port


def without_prefix(route: Route) -> None:
    """Pass a request on as an ingress and JupyterHub do that serve the page below a path."""
    there = urlsplit(route.request.url)
    url = there._replace(path=there.path.replace(BELOW, ""), netloc=f"127.0.0.1:{there.port}")
    headers = {**route.request.headers, "host": there.netloc}
    route.fulfill(response=route.fetch(url=url.geturl(), headers=headers))


def shows_the_run(page: Page) -> None:
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator("main")).to_contain_text("moving")


@pytest.mark.parametrize("path", ["", BELOW])
def test_the_page(path: str, browser: Browser, port: int) -> None:
    page, _ = new_page(browser)
    page.route(f"**/{BELOW}**", without_prefix)
    for host in ("localhost", "127.0.0.1", NAME):
        home = f"http://{host}:{port}/{path}"
        page.goto(home)
        shows_the_run(page)
        page.goto(f"{home}#/run/moving")
        expect(page.locator(".overview")).to_contain_text("judged")
        page.get_by_role("link", name="Runs", exact=True).click()
        expect(page).to_have_url(f"{home}#/")
        shows_the_run(page)
    page.unroute_all(behavior="ignoreErrors")  # the page polls: a question may be on its way
    page.context.close()


def test_a_name_that_was_rebound(browser: Browser, port: int) -> None:
    """A page elsewhere of which the name is this machine now, and one that asks across sites."""
    page, _ = new_page(browser)
    answer = page.goto(f"http://{FOREIGN}:{port}/api/runs")
    assert answer is not None
    assert answer.status == 421
    page.goto(f"http://localhost:{port}/healthz")
    read = f"fetch('http://127.0.0.1:{port}/api/runs').then(r => r.status, e => 'blocked')"
    assert page.evaluate(read) == "blocked"
    page.context.close()


def test_a_token(browser: Browser, books: Redis, redis_server: RedisServer, tmp_path: Path) -> None:
    with aggregator(redis_server, tmp_path, PLUMBLINE_AGGREGATOR_TOKEN=TOKEN) as port:
        page, _ = new_page(browser)
        refused = page.goto(f"http://localhost:{port}/")
        assert refused is not None
        assert refused.status == 401
        page.goto(f"http://localhost:{port}/?token={TOKEN}#/run/moving")
        shows_the_run(page)
        assert page.url == f"http://localhost:{port}/#/run/moving"
        (cookie,) = page.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Strict")
        assert TOKEN not in cookie["value"]
        page.reload()
        shows_the_run(page)
        page.context.close()
