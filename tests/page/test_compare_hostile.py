"""Comparisons whose every text is hostile: names, problems, details, completions, cases."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from redis import Redis

from services.aggregator.comparison.page import write_comparison
from shared.analysis.compare import compare_runs
from shared.analysis.runs import read_runs
from shared.artifacts import OutputFolder
from shared.run_record import RunState
from tests.page import compared, hostile
from tests.page.conftest import Visit
from tests.page.quiet import assert_quiet, shown

pytestmark = pytest.mark.browser

NAMES = ("first,100%25", hostile.RUN)
LARGE = ("markup",)


@pytest.fixture(scope="module", autouse=True)
def folder(books: Redis, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("runs")
    ledgers = {}
    for number, name in enumerate(NAMES):
        ledger = hostile.begin(books, name, str(place / str(number)), LARGE)
        hostile.judge_all(ledger, number, LARGE)
        ledger.set_state(RunState.JUDGED)
        ledgers[name] = ledger
    compared.wait(ledgers)
    yield place


def test_nothing_runs_and_every_flip_is_shown(address: str, visit: Visit) -> None:
    page, watch = visit()
    page.goto(f"{address}/")
    boxes = page.locator("input[type=checkbox]")
    expect(boxes).to_have_count(len(NAMES))
    for box in boxes.all():
        box.check()
    page.get_by_role("link", name="Compare 2 runs").click()
    expect(page.locator("h1")).to_have_text("Compare 2 runs")
    expect(page.locator("main")).to_contain_text(shown(hostile.RUN))
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert_quiet(page, watch, address)
    for name in ("script_end", "override"):
        page.get_by_label("Data set").select_option(hostile.TEXTS[name])
        page.get_by_label("Show").select_option("all")
        page.get_by_role("region", name="Samples").locator("tr.row a").first.click()
        expect(page.locator(".opened article h3").first).to_contain_text(
            shown(hostile.TEXTS[name])[:20]
        )
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert_quiet(page, watch, address)
    page.get_by_label("Data set").select_option("large")
    page.get_by_label("Show").select_option("all")
    for name in LARGE:
        link = page.get_by_role("region", name="Samples").get_by_role("link", name=name)
        link.click()
        title = page.locator(".opened article h3").first
        expect(title).to_have_text(name, timeout=60_000)
    assert_quiet(page, watch, address)


def test_the_file_is_as_quiet(folder: Path, visit: Visit) -> None:
    first, second = read_runs([str(folder / str(number)) for number in range(2)])
    write_comparison([compare_runs(first, second)], OutputFolder(str(folder)), "found.html")
    file = folder / "found.html"
    page, watch = visit()
    page.goto(file.as_uri())
    expect(page.locator("h1")).to_have_text("Compare 2 runs")
    for name in ("comment", "prototype"):
        page.get_by_label("Data set").select_option(hostile.TEXTS[name])
        page.get_by_label("Show").select_option("all")
        page.get_by_role("region", name="Samples").locator("tr.row a").first.click()
        expect(page.locator(".opened article h3").first).to_be_visible()
        assert_quiet(page, watch, file.as_uri())
