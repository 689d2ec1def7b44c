"""Every view against axe-core's rules: WCAG 2.2 A and AA, and best practices."""

from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from redis import Redis

from tests.page import plain
from tests.page.conftest import Visit

pytestmark = pytest.mark.browser

_SAMPLE = "#/run/done/codecontests_valid/codecontests_valid_001/0"
_VIEWS = {
    "runs": "{server}/",
    "run": "{server}/#/run/done",
    "metrics": "{server}/#/run/done/metrics",
    "slices": "{server}/#/run/done/slices",
    "performance": "{server}/#/run/done/performance",
    "setup": "{server}/#/run/done/setup",
    "in_progress": "{server}/#/run/moving",
    "sample": f"{{server}}/{_SAMPLE}",
    "compare": "{server}/#/compare?runs=done,moving&kind=all&open=0%2Fcodecontests_valid_001",
    "problems": "{server}/#/problems/codecontests_valid",
    "problem": "{server}/#/problem/codecontests_valid/codecontests_valid_001",
    "history": "{server}/#/history",
    "missing": "{server}/#/run/none",
    "report": "{report}",
    "report_sample": f"{{report}}{_SAMPLE}",
}


@pytest.fixture(scope="module")
def urls(books: Redis, address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address of each view; ``done`` is published, ``moving`` has a fifth of its verdicts."""
    folder = tmp_path_factory.mktemp("runs")
    plain.publish_one_of_two(books, folder)
    report = (folder / "done" / "report.html").as_uri()
    places = {"server": address, "report": report}
    return {view: url.format(**places) for view, url in _VIEWS.items()}


# Most of the time goes into colours, which test_page.py measures of every text in both themes.
_COLOURS = ["color-contrast"]


def findings(page: Page, *, colours: bool = False) -> list[str]:
    """Each rule that is broken, with the first element that breaks it."""
    rules = {} if colours else {name: {"enabled": False} for name in _COLOURS}
    options = {"resultTypes": ["violations"], "preload": False, "rules": rules}
    broken = Axe().run(page, options=options).response["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in broken]


def open_at(page: Page, url: str) -> None:
    """Load a view anew, and open all that is folded."""
    page.goto("about:blank")
    page.goto(url)
    expect(page.locator("main h1")).to_be_visible()
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")


@pytest.mark.parametrize(
    ("width", "theme"),
    [(1280, "light"), pytest.param(390, "dark", marks=pytest.mark.nightly)],
)
def test_no_view_has_findings(
    urls: dict[str, str], visit: Visit, width: int, theme: Literal["light", "dark"]
) -> None:
    page, _watch = visit(width, theme)
    broken = {}
    for view, url in urls.items():
        open_at(page, url)
        broken[view] = findings(page, colours=theme == "dark")
    assert {view: rules for view, rules in broken.items() if rules} == {}


def test_the_list_of_keys_has_none(urls: dict[str, str], page: Page) -> None:
    open_at(page, urls["sample"])
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert findings(page) == []
