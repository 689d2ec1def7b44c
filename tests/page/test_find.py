"""Finding samples on a run's page: choices, ranges, texts, groups of failures, keys, links."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from redis import Redis

from services.aggregator.report import compact
from shared.run_record import RunState
from shared.statuses import FinalStatus
from tests.aggregator.reports import DATA, data_of
from tests.page import plain
from tests.page.compared import wait
from tests.page.conftest import Visit, new_page
from tests.page.views import choose

pytestmark = pytest.mark.browser

STATUSES = list(FinalStatus)


@pytest.fixture(scope="module")
def published(books: Redis, address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a finished run with 120 samples."""
    folder = tmp_path_factory.mktemp("runs") / "found"
    ledger = plain.begin(books, "found", str(folder))
    plain.judge_some(ledger, 0, 2 * plain.PER_DATASET)
    ledger.set_state(RunState.JUDGED)
    wait(ledger)
    return folder / "report.html"


@pytest.fixture(scope="module", params=["live", "report"])
def run(request: pytest.FixtureRequest, address: str, published: Path) -> str:
    """The address of the run: in the aggregator, and in its report."""
    base = f"{address}/" if request.param == "live" else published.as_uri()
    return f"{base}#/run/found"


@pytest.fixture(scope="module")
def reader(browser: Browser) -> Iterator[Page]:
    """One browser's page for all tests, which load the run anew."""
    page, watch = new_page(browser)
    yield page
    page.context.close()
    assert watch.errors == []


@pytest.fixture
def page(run: str, reader: Page) -> Page:
    reader.goto("about:blank")
    reader.goto(run)
    expect(reader.locator("tr.row")).to_have_count(50)
    expect(count(reader)).to_have_text("120")
    return reader


def count(page: Page):
    return page.locator("h2 .number")


def test_choices_are_counted_under_the_other_filters(page: Page) -> None:
    choose(page, "Status", "timeout")
    expect(count(page)).to_have_text("17")
    choose(page, "Status", "api_error")
    expect(count(page)).to_have_text("34")
    choose(page, "Data set", "humaneval")
    of_set = [n for n in range(60, 120) if STATUSES[n % 7] in ("timeout", "api_error")]
    expect(count(page)).to_have_text(str(len(of_set)))
    expect(page.locator("tr.row")).to_have_count(len(of_set))
    box = page.locator("details.choice", has_text="Status")
    # Statuses are counted in the data set, whichever of them are chosen.
    line = box.locator("li", has_text="success").locator(".number")
    expect(line).to_have_text(str(sum(n % 7 == 0 for n in range(60, 120))))
    assert "status=timeout%2Capi_error" in page.url
    page.reload()
    expect(page.locator("tr.row")).to_have_count(len(of_set))
    page.get_by_role("button", name="Clear all filters").click()
    expect(count(page)).to_have_text("120")
    assert page.url.endswith("#/run/found")


def test_ranges_and_texts(page: Page) -> None:
    page.locator("summary", has_text="Ranges").click()
    page.get_by_label("Tokens, at least").fill("110")
    page.get_by_label("Tokens, at most").fill("119")
    expect(count(page)).to_have_text("10")
    expect(page.locator("tr.row a").first).to_have_text("codecontests_valid_010")
    page.get_by_label("Text ( t )").fill("KEYERROR: 7")
    expect(count(page)).to_have_text("9")  # all but the one that succeeded have a failed case
    page.locator("select[name=in]").select_option("completion")
    expect(page.locator("main p[role=status]")).to_have_text("No such sample.")
    page.get_by_label("Text ( t )").fill("We look UP")
    expect(count(page)).to_have_text("10")
    page.reload()
    expect(count(page)).to_have_text("10")
    expect(page.get_by_label("Tokens, at most")).to_have_value("119")


def test_headers_sort(page: Page) -> None:
    tokens = page.locator("th:has(button)", has_text="tokens")
    tokens.get_by_role("button").click()
    expect(tokens).to_have_attribute("aria-sort", "descending")
    expect(page.locator("tr.row a").first).to_have_text("humaneval_059")
    tokens.get_by_role("button").press("Enter")
    expect(tokens).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("tr.row a").first).to_have_text("codecontests_valid_000")
    expect(page.get_by_label("Sort")).to_have_value("output_tokens")
    page.locator("th:has(button)", has_text="problem").get_by_role("button").click()
    expect(page.locator("th[aria-sort]")).to_have_text("problem")


def test_a_link_to_a_page_opens_it(page: Page) -> None:
    page.get_by_label("Order").select_option("desc")
    expect(page.locator("tr.row a").first).to_have_text("humaneval_059")
    for last in (100, 120):
        page.keyboard.press("Escape")
        page.keyboard.press("n")
        expect(page.locator("main p[role=status]")).to_contain_text(f"to {last}")
    first = page.locator("tr.row a").first
    expect(first).to_have_text("codecontests_valid_019")
    assert "page=3" in page.url
    page.reload()
    expect(first).to_have_text("codecontests_valid_019")
    page.get_by_role("button", name="Previous").click()
    expect(first).to_have_text("humaneval_009")
    # Beyond the end, too.
    page.goto(re.sub(r"&?page=[^&]*", "", page.url) + "&page=9")
    expect(page.locator("main p[role=status]")).to_have_text("Samples 101 to 120")


def test_failures_are_grouped_and_lead_to_their_samples(page: Page) -> None:
    page.locator("body").press("g")
    rows = page.locator("details.failures tbody tr")
    expect(rows).to_have_count(6)
    sizes = [
        int(text.split()[0])
        for text in page.locator("details.failures td.number").all_inner_texts()
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == sum(n % 7 > 0 for n in range(120))
    group = rows.filter(has_text="runtime_error")
    expect(group).to_contain_text("signal: SIGSEGV")
    expect(group).to_contain_text("KeyError: N")
    expect(group.locator("pre").first).to_contain_text("KeyError: 7")
    expect(rows.filter(has_text="wrong_answer")).to_contain_text("expected `N`, got `N`")
    size = group.locator("td.number").inner_text().split()[0]
    group.locator("th a").click()
    expect(count(page)).to_have_text(size)
    expect(page.get_by_role("button", name="failure: runtime_error")).to_be_visible()
    assert set(page.locator("tr.row .status").all_inner_texts()) == {"runtime_error"}


@pytest.mark.parametrize("run", ["live"], indirect=True)
def test_every_key_in_the_help_does_what_it_says(page: Page) -> None:
    body = page.locator("body")
    body.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("open or close the groups")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    go_to(page, "t", page.get_by_label("Text ( t )"))
    page.keyboard.press("Escape")
    go_to(page, "f", page.locator("details.choice summary").first)
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator("details.choice input").first).to_be_checked()
    expect(page.locator("details.choice input").first).to_be_focused()
    expect(page.get_by_role("button", name="Status: ")).to_be_visible()
    page.keyboard.press("x")
    expect(page.get_by_role("button", name="Status: ")).to_have_count(0)
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Next")).to_be_enabled()
    page.keyboard.press("n")
    expect(page.locator("main p[role=status]")).to_contain_text("Samples 51")
    page.keyboard.press("p")
    expect(page.locator("main p[role=status]")).to_contain_text("Samples 1 to")


def go_to(page: Page, key: str, target: Locator) -> None:
    """Press a key that moves the focus; once more where a busy browser has lost the first."""
    page.keyboard.press(key)
    try:
        expect(target).to_be_focused(timeout=10_000)
    except AssertionError:
        page.keyboard.press(key)
        expect(target).to_be_focused()


def test_the_report_hides_a_search_in_texts_that_it_lacks(
    published: Path, visit: Visit, tmp_path: Path
) -> None:
    page, _watch = visit()
    data = data_of(published)
    data["samples"][-1][-1] = None  # without its texts
    cut = tmp_path / "cut.html"
    cut.write_text(
        DATA.sub(
            lambda match: match[0].replace(match[1], compact(data)), published.read_text("utf-8")
        ),
        "utf-8",
    )
    page.goto(cut.as_uri())
    expect(page.locator("tr.row")).to_have_count(50)
    expect(page.get_by_label("Search")).to_be_visible()
    assert page.get_by_label("Text ( t )").count() == 0
