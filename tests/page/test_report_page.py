"""``report.html`` in a real Chromium, from a file and without any network."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from redis import Redis

from services.aggregator.publish import publish
from services.aggregator.report.page import Bounds, write_report
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.finished_run import open_run
from tests.aggregator.reports import finished
from tests.page.conftest import Visit

pytestmark = pytest.mark.browser


def opened(visit: Visit, path: Path, fragment: str = "", **options: Any) -> Page:
    page, _watch = visit(**options)
    page.goto(f"{path.as_uri()}{fragment}")
    return page


@pytest.fixture(scope="module")
def report(books: Redis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    publish(finished(books, str(folder / "run")))
    return folder / "run" / artifacts.REPORT


def test_a_run_at_a_glance(visit: Visit, report: Path) -> None:
    page, watch = visit()
    page.goto(report.as_uri())
    expect(page.locator("h1")).to_have_text("mine")
    expect(page.locator(".intervals .value b").first).to_have_text("66.7 %")
    page.get_by_role("link", name="Slices").click()
    expect(page.get_by_role("region", name="Slices of d1")).to_contain_text("graphs")
    page.get_by_role("link", name="Metrics").click()
    expect(page.get_by_role("region", name="Metrics")).to_contain_text("pass@2")
    page.get_by_role("link", name="Samples").click()
    expect(page.locator("tr.row")).to_have_count(4)
    assert watch.requests == [report.as_uri()]


def test_the_link_of_a_sample_lasts(visit: Visit, report: Path) -> None:
    page = opened(visit, report, "#/run/run-1/d1/p1/1")
    for _ in range(2):
        expect(page.locator("h1")).to_have_text("p1 #1")
        expect(page.get_by_role("group", name="Code that was judged")).to_have_text("print(1 < 2)")
        expect(page.get_by_role("group", name="Completion")).to_contain_text("Here it is:")
        page.reload()
    code = page.get_by_role("group", name="Code that was judged")
    assert code.locator(".literal").count() == 2
    boxes = [page.get_by_role("group", name=name).bounding_box() for name in ("Expected", "Actual")]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    expect(page.get_by_role("group", name="Prompt")).to_have_text("a" * 600)
    page.goto(f"{report.as_uri()}#/run/run-1/d1/constructor/0")
    expect(page.locator("main")).to_contain_text("does not contain the sample")
    page.goto(f"{report.as_uri()}#/run/other")
    expect(page.locator("main")).to_contain_text("contains no other run")


def test_a_sample_whose_texts_are_elsewhere(visit: Visit, report: Path) -> None:
    folder = OutputFolder(str(report.parent))
    write_report(open_run(folder.url), folder, "figures.html", Bounds(text_bytes=0))
    page = opened(visit, report.with_name("figures.html"))
    expect(page.locator("main")).to_contain_text("failed case are included for 0 samples")
    expect(page.locator("tr.row").first).to_contain_text("figures alone")
    page.locator("tr.row a").first.click()
    expect(page.locator("main")).to_contain_text("generations.jsonl and verdicts.jsonl have its")
    expect(page.locator("dl")).to_contain_text("output tokens")
