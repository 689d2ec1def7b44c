"""The page over a folder of finished runs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.cli.test_view import View
from tests.page.conftest import Visit
from tests.page.quiet import assert_quiet
from tests.shared.finished_runs import write_run

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=canary=1>\u202e"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("view") / "outputs"


@pytest.fixture(scope="module")
def view(outputs: Path) -> Iterator[View]:
    viewed = View(str(outputs), folder=outputs.parent)
    yield viewed
    viewed.kill()


def test_runs_appear_and_disappear(view: View, visit: Visit, outputs: Path) -> None:
    page, watch = visit()
    page.goto(view.url)
    main = page.locator("main")
    expect(main).to_contain_text(f"{outputs}: no such folder")
    expect(main).to_contain_text("No run yet")

    write_run(outputs / "a", {"d1": "++-"}, change={"name": HOSTILE})
    shutil.copytree(outputs / "a", outputs / "copy")
    expect(page.locator(".runs tbody tr")).to_have_count(2)
    expect(main).to_contain_text(f"{outputs}: 2 runs")
    for name in ("a", "copy"):
        expect(page.locator(".runs tbody tr", has_text=f"{outputs}/{name}").last).to_be_visible()
    assert_quiet(page, watch, view.url)

    page.locator(".runs tbody a").first.click()
    expect(page.locator("main p[role=status]")).to_contain_text("Samples 1 to 3")
    page.locator("tr.row a").last.click()
    expect(main).to_contain_text("wrong_answer")
    shutil.rmtree(outputs / "a")
    shutil.rmtree(outputs / "copy")
    page.goto(view.url)
    expect(main).to_contain_text("No run yet")
    assert_quiet(page, watch, view.url)


def test_recorded_answers_are_counted_and_have_no_temperature(
    view: View, visit: Visit, outputs: Path
) -> None:
    write_run(outputs / "two", {"d1": ["+-", "-+"]}, change={"completions": "answers.jsonl"})
    page, _watch = visit()
    page.goto(view.url)
    page.locator(".runs tbody a").first.click()
    measured = "2 problems of 1 data set · 2 answers each · recorded answers · judged"
    expect(page.locator(".overview")).to_contain_text(measured)
    page.get_by_role("link", name="Setup").click()
    expect(page.locator(".part dl")).to_contain_text("samplingrecorded answers")
    shutil.rmtree(outputs / "two")


def test_what_cannot_be_read_is_said(view: View, visit: Visit, outputs: Path) -> None:
    write_run(outputs / "torn", {"d1": "++--"}, change={"name": "N" * 200})
    verdicts = outputs / "torn" / "verdicts.jsonl"
    whole = verdicts.read_text()
    verdicts.write_text(whole[: whole.rindex('{"dataset"') + 14])
    (outputs / "newer").mkdir()
    (outputs / "newer" / "run.json").write_text(json.dumps({"version": 9, "run": HOSTILE}))
    page, watch = visit(390)
    page.clock.install()
    page.goto(view.url)
    page.get_by_text("2 things could not be read").click()
    shown = page.locator("details li")
    expect(shown).to_have_count(2)
    expect(shown.first).to_contain_text("run record of version 9")
    # It is drawn again every few seconds, and stays open.
    with page.expect_response("**/api/folders"):
        page.clock.run_for(10_000)
    expect(shown.last).to_be_visible()
    card = page.locator(".runs tbody tr")
    expect(card.locator("div.incomplete").first).to_have_text(
        "3 of 4 judged, 1 without a verdict: incomplete"
    )
    fits = "document.documentElement.scrollWidth <= innerWidth"
    page.locator(".runs tbody a").first.click()
    expect(page.locator("main")).to_contain_text("verdicts.jsonl:4: torn last line")
    expect(page.locator(".intervals")).to_contain_text("1 not judged")
    assert page.locator("rect.bounds").count() == 1
    assert page.evaluate(fits)
    page.get_by_role("link", name="Compare with another run").click()
    expect(page.get_by_label("Baseline")).to_be_visible()
    assert page.evaluate(fits)
    assert_quiet(page, watch, view.url)
