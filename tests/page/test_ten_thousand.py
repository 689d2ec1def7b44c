"""Scale: with ten thousand samples the DOM and each request stay small.

Bounds are counts and sizes, which load on the machine does not change; times are printed.
"""

import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect
from redis import Redis

from tests.page.choices import choose
from tests.page.conftest import Visit
from tests.page.many_samples import RUN, fill, wait

pytestmark = [pytest.mark.browser, pytest.mark.nightly]

SAMPLES = 10_000
_ROWS = 50
_NODES = 1500
_BYTES = 60_000
_LONG_TASKS = """
globalThis.long = [];
new PerformanceObserver((list) => long.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "longtask", buffered: true });
"""


@pytest.fixture(scope="module")
def run(books: Redis, address: str) -> str:
    fill(books, SAMPLES)
    wait(address, SAMPLES)
    return f"{address}/#/run/{RUN}"


@pytest.fixture
def page(run: str, visit: Visit) -> Iterator[Page]:
    page, watch = visit()
    page.add_init_script(_LONG_TASKS)
    page.goto(run)
    expect(page.locator("main p[role=status]")).to_contain_text("Samples 1 to 50")
    yield page
    assert watch.errors == []
    print(f"tasks of more than 50 ms: {[round(ms) for ms in page.evaluate('long')]}")


def step(page: Page, what: str, act: Callable[[], object], says: str) -> None:
    """Do something, and see that little was fetched for it and little stands in the document."""
    began = time.monotonic()
    with page.expect_response("**/samples?*") as answer:
        act()
    expect(page.locator("main p[role=status]")).to_contain_text(says)
    size = len(answer.value.body())
    print(f"{what}: {1000 * (time.monotonic() - began):.0f} ms, {size} bytes")
    assert page.locator("tr.row").count() <= _ROWS
    assert page.evaluate("document.querySelectorAll('*').length") < _NODES
    assert size < _BYTES


def test_pages(page: Page) -> None:
    on = page.get_by_role("button", name="Next")
    for number in range(2, 12):
        last = number * _ROWS
        step(page, f"page {number}", on.click, f"Samples {last - _ROWS + 1} to {last}")
    back = page.get_by_role("button", name="Previous")
    step(page, "page 10 again", back.click, "Samples 451 to 500")


def test_filter_sort_and_search(page: Page) -> None:
    def option(label: str, value: str) -> Callable[[], object]:
        return lambda: page.get_by_label(label).select_option(value)

    search = page.get_by_label("Search")
    step(page, "by status", lambda: choose(page, "Status", "timeout"), "Samples 1 to 50")
    step(page, "by time", option("Sort", "total_judge_time"), "Samples 1 to 50")
    step(page, "longest first", option("Order", "desc"), "Samples 1 to 50")
    step(page, "any status", lambda: choose(page, "Status", "timeout", on=False), "Samples 1 to 50")
    step(page, "search", lambda: search.fill("p999"), "Samples 1 to 10")
    step(page, "search in vain", lambda: search.fill("nothing like it"), "No such sample.")


def test_typing_asks_for_the_last_word_alone(page: Page) -> None:
    """Answers may come late and in any order; the one to what stands in the box is shown."""
    search = page.get_by_label("Search")
    search.press_sequentially("p123")
    expect(page.locator("main p[role=status]")).to_have_text("Samples 1 to 10")
    assert {row[:4] for row in page.locator("tr.row a").all_inner_texts()} == {"p123"}
