"""History and performance in a browser: both widths and themes, keyboard, hostile names."""

from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, expect
from redis import Redis

from tests.conftest import RedisServer
from tests.page import trained
from tests.page.compared import wait
from tests.page.conftest import Visit
from tests.page.quiet import assert_quiet
from tests.page.views import assert_readable

pytestmark = pytest.mark.browser

HOSTILE = "ckpt-2"
SLOW = "slow"


@pytest.fixture(scope="module", autouse=True)
def report(
    books: Redis, redis_server: RedisServer, address: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Five published checkpoints, one of another protocol, one in progress; a report's URL."""
    folder = tmp_path_factory.mktemp("runs")
    published = []
    for number, right in enumerate((9, 4, 7, 9, 10)):
        begun = trained.BEGUN + number * trained.DAY
        name, model = f"step {number}", f"ckpt/step_{10 ** (4 - number)}"
        if f"ckpt-{number}" == HOSTILE:
            name, model = trained.hostile_names()
        facts = {"name": name, "model": model, "begun": begun}
        run = f"ckpt-{number}"
        published.append(trained.judged(books, run, f"{folder}/{run}", right, **facts))
    facts = {"name": SLOW, "model": "m", "begun": trained.BEGUN, "timeout": 20}
    published.append(trained.judged(books, SLOW, f"{folder}/{SLOW}", 5, **facts))
    now = trained.BEGUN + 6 * trained.DAY
    output = str(folder / "moving")
    moving = trained.begin(books, "moving", output, name="moving", model="z", begun=now)
    trained.answer(moving, now, 9, first=6)
    wait(*published)
    return (folder / "ckpt-1" / "report.html").as_uri()


def opened(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator("h1")).to_have_text("History")
    expect(page.locator(".gate.unknown, td:text-is('…')")).to_have_count(0)


def readable(page: Page) -> None:
    """No sideways scrolling, enough contrast, a name for each picture."""
    assert_readable(page, 20)
    expect(page.locator("[role=img]:not([aria-label]), [role=img][aria-label='']")).to_have_count(0)


def test_the_history_is_readable_and_hostile_names_are_inert(address: str, visit: Visit) -> None:
    page, watch = visit()
    opened(page, f"{address}/#/history")
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    expect(page.get_by_role("region", name="Runs on humaneval")).to_contain_text("compare")
    expect(page.locator(".trend svg[role=img]")).to_have_count(2 * 5)
    words = page.get_by_role("region", name="The gate's verdicts").locator("th, td")
    widths = "all => all.map((one) => one.getBoundingClientRect().width).filter((width) => width)"
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            readable(page)
        assert min(words.evaluate_all(widths)) > 40
    expect(page.locator(".trend .plot").first).to_contain_text("ckpt/step_10000")
    assert_quiet(page, watch, address)


def test_a_trend_has_a_point_for_each_run_and_the_table_the_same_figures(
    address: str, page: Page
) -> None:
    opened(page, f"{address}/#/history")
    card = page.locator("article.trend", has_text="humaneval")
    chart = card.locator("svg").first
    expect(chart.locator("g.marker")).to_have_count(6)
    expect(chart.locator("line.error-bar")).to_have_count(6)
    expect(chart.locator("rect.partial")).to_have_count(1)
    told = str(chart.get_attribute("aria-label")).replace("\xa0", " ")
    assert "between 33.3 % and 83.3 %" in told
    summary = card.locator("summary")
    summary.focus()
    page.keyboard.press("Enter")
    rows = card.locator("tbody tr")
    expect(rows).to_have_count(6)
    expect(rows.nth(1)).to_contain_text("33.3 %")
    expect(rows.nth(1)).to_contain_text("13.8 % to 60.9 %")
    assert _addresses(rows.nth(1)) == ["#/run/ckpt-1", "#/compare?runs=ckpt-0%2Cckpt-1"]
    assert _addresses(rows.nth(0)) == ["#/run/ckpt-0"]
    expect(rows.nth(5)).to_contain_text("6 of 12")


def _addresses(place: Locator) -> list[str | None]:
    return [link.get_attribute("href") for link in place.locator("a").all()]


def test_a_point_that_is_clicked_leads_to_its_run_and_its_comparison(
    address: str, page: Page
) -> None:
    opened(page, f"{address}/#/history")
    card = page.locator("article.trend", has_text="mbpp_reg")
    card.locator("g.marker rect").nth(3).click()
    picked = card.locator(".picked")
    expect(picked).to_contain_text("step 3")
    assert _addresses(picked) == ["#/run/ckpt-3", "#/compare?runs=ckpt-0%2Cckpt-3"]
    picked.locator("a").first.click()
    expect(page.locator("h1")).to_have_text("step 3")


def test_the_baseline_is_in_the_address_and_the_gate_follows_it(address: str, page: Page) -> None:
    opened(page, f"{address}/#/history")
    verdicts = page.get_by_role("region", name="The gate's verdicts").locator("tbody tr")
    expect(verdicts.nth(0)).to_contain_text("baseline")
    expect(verdicts.nth(1)).to_contain_text("inconclusive")
    expect(verdicts.nth(1)).to_contain_text("humaneval problems: 12 (too few problems)")
    page.locator("select[name=baseline]").select_option("ckpt-1")
    expect(verdicts.nth(1)).to_contain_text("baseline")
    expect(page.locator("select[name=baseline]")).to_be_focused()
    assert "baseline=ckpt-1" in page.url
    page.reload()
    expect(page.locator("select[name=baseline]")).to_have_value("ckpt-1")
    expect(verdicts.nth(1)).to_contain_text("baseline")
    expect(verdicts.nth(5)).to_contain_text("numbers may change")


def test_other_protocols_are_apart_and_have_their_own_history(address: str, page: Page) -> None:
    opened(page, f"{address}/#/history")
    expect(page.locator("h2", has_text="Runs of other protocols")).to_be_visible()
    page.get_by_text("1 run: sandbox.timeout").click()
    differing = page.get_by_role("region", name="What differs")
    expect(differing).to_contain_text("10.0")
    expect(differing).to_contain_text("20.0")
    page.get_by_role("link", name="Their history").click()
    expect(page.locator("main")).to_contain_text("There is one run of this protocol")
    expect(page.locator("main")).to_contain_text("There is no other run to check")
    expect(page.locator(".trend").first.locator("g.marker").first).to_be_visible()


def test_a_baseline_that_is_not_there_is_named(address: str, page: Page) -> None:
    opened(page, f"{address}/#/history?baseline=%3Cimg%3E")
    expect(page.locator("main")).to_contain_text("The baseline <img> is not among these runs")
    page.goto(f"{address}/#/history?protocol=none")
    expect(page.locator("h1")).to_have_text("This cannot be shown")


@pytest.mark.parametrize(
    ("place", "width", "theme"),
    [
        ("live", 1280, "light"),
        ("report", 390, "dark"),
        pytest.param("live", 390, "light", marks=pytest.mark.nightly),
        pytest.param("report", 1280, "dark", marks=pytest.mark.nightly),
    ],
)
def test_performance_is_drawn_when_it_is_opened(
    place: str, address: str, report: str, visit: Visit, width: int, theme: Literal["light", "dark"]
) -> None:
    page, watch = visit(width, theme)
    page.goto(f"{address}/#/run/ckpt-1" if place == "live" else report)
    section = page.locator(".part")
    expect(section).to_be_visible()
    assert not any(url.endswith("/performance") for url in watch.requests)
    page.get_by_role("link", name="Performance").focus()
    page.keyboard.press("Enter")
    expect(section.locator(".sentence")).to_contain_text("Judging was the slower part")
    expect(section.locator("svg[role=img]")).to_have_count(6)
    expect(section).to_contain_text("Time-outs")
    table = section.locator("details", has_text="As a table").nth(3)
    table.locator("summary").click()
    expect(table.locator("tbody tr")).to_have_count(81)
    readable(page)
    assert page.locator("nav.views").count() == (place == "live")


def test_a_report_has_no_history(report: str, page: Page) -> None:
    for view, name in {"history": "history", "compare?runs=a,b": "compare", "runs": "runs"}.items():
        page.goto(f"{report}#/{view}")
        expect(page.locator("main")).to_contain_text(f"has no {name}")
