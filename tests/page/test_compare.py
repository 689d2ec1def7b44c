"""The comparison in a browser: from the choice of runs to a flip side by side."""

import json
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect
from redis import Redis

from tests.cli.commands import plumb
from tests.page import compared
from tests.page.conftest import Visit
from tests.page.quiet import assert_quiet
from tests.page.views import Looks, assert_reached_by_keyboard, assert_readable_in, open_at

pytestmark = pytest.mark.browser

PAIR = "#/compare?runs=base%2Ctuned"
FLIP = "&against=B&dataset=codecontests_valid&kind=lost&open=0%2F1501_A.+Pairs"
VIEWS = {
    "choice": "#/compare?runs=base",
    "pair": PAIR,
    "flip": PAIR + FLIP,
    "four": "#/compare?runs=base,tuned,other,moving",
    "problems": "#/problems/codecontests_valid",
    "problem": "#/problem/codecontests_valid/1500_B.%20Pairs",
}


@pytest.fixture(scope="module", autouse=True)
def runs(books: Redis, address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the published runs, with the comparison of two of them as JSON."""
    folder = tmp_path_factory.mktemp("runs")
    ledgers = compared.fill(books, str(folder))
    compared.wait(*(ledger for name, ledger in ledgers.items() if name != "moving"))
    done = plumb("compare", "base", "tuned", "--json", "found.json", folder=folder)
    assert done.code == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def urls(address: str) -> dict[str, str]:
    """The address of each view."""
    return {view: f"{address}/{where}" for view, where in VIEWS.items()}


def cells(page: Page, region: str, row: str) -> list[str]:
    """The texts of the first row of a table in which a text stands."""
    table = page.get_by_role("region", name=region, exact=True)
    shown = table.locator("tr", has_text=row).first
    return shown.locator("th, td").all_inner_texts()


def test_every_view_is_readable_reached_by_keyboard_and_what_is_drawn_has_a_name(
    urls: dict[str, str], visit: Visit
) -> None:
    page, watch = visit()
    for view, url in urls.items():
        watch.requests.clear()
        page.set_viewport_size({"width": 1280, "height": 900})
        open_at(page, url)
        expect(page.locator("main")).not_to_contain_text("Loading")
        if view == "four":
            page.locator("details", has_text="Problems × runs").evaluate("one => (one.open = true)")
            expect(page.get_by_role("region", name="Problems by runs")).to_contain_text("%")
        assert_reached_by_keyboard(page, view)
        looks: list[Looks] = [(1280, "light"), (390, "dark"), (2560, "dark")]
        assert_readable_in(page, looks, 3)
        nameless = "[role=img]:not([aria-label]), [role=img][aria-label='']"
        expect(page.locator(nameless)).to_have_count(0)
        assert_quiet(page, watch, url.partition("#")[0])


def test_runs_are_chosen_on_the_page_of_all_runs(address: str, page: Page) -> None:
    open_at(page, f"{address}/")
    for run in ("base", "tuned"):
        page.get_by_label(f"Compare {run}").focus()
        page.keyboard.press("Space")
    page.get_by_role("link", name="Compare 2 runs").click()
    expect(page.locator("h1")).to_have_text("Compare 2 runs")
    assert page.url.endswith(PAIR)
    open_at(page, f"{address}/#/run/tuned")
    page.get_by_role("link", name="Compare with another run").click()
    page.get_by_label("Compare with").select_option("base")
    expect(page.locator("main dl dd a").first).to_have_text("tuned")
    page.get_by_label("Baseline").select_option("base")
    expect(page.locator("main dl dd a").first).to_have_text("base")


def test_other_protocols_are_named_before_any_number(address: str, page: Page) -> None:
    open_at(page, f"{address}/#/compare?runs=base,other")
    block = page.locator(".comparison")
    expect(block.get_by_role("alert")).to_contain_text(
        "judge.max_timeouts is 4 in base and 7 in other"
    )
    above, below = (
        block.locator(part).bounding_box() for part in ("[role=alert]", "[role=region]")
    )
    assert above is not None
    assert below is not None
    assert above["y"] + above["height"] <= below["y"]
    open_at(page, f"{address}/{PAIR}")
    expect(page.locator(".comparison [role=alert]")).to_have_count(0)
    expect(page.locator(".comparison")).to_contain_text("19 samples are paired; left out: 1")
    open_at(page, f"{address}/#/compare?runs=base,moving")
    expect(page.locator("main")).to_contain_text("running: 34 samples without a verdict so far")
    page.set_viewport_size({"width": 390, "height": 900})
    shown = page.get_by_role("region", name="moving against base").locator("tbody tr").first
    boxes = [number.bounding_box() for number in shown.locator("td").all()]
    assert len(boxes) == 9  # on a phone none of them has to be scrolled for
    assert all(box and box["x"] + box["width"] <= 390 for box in boxes)


def test_from_the_grid_to_a_problem_and_its_answers(urls: dict[str, str], page: Page) -> None:
    open_at(page, urls["pair"])
    expect(page.locator("summary", has_text="Problems × runs")).to_have_count(0)
    open_at(page, urls["four"])
    page.locator("summary", has_text="Problems × runs").click()
    table = page.get_by_role("region", name="Problems by runs")
    expect(table.locator("tbody tr")).to_have_count(20)
    expect(table.locator("thead th")).to_have_text(["problem", "base", "tuned", "other", "moving"])
    rows = [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]
    disagree = [len({*row} - {"–"}) > 1 for row in rows]
    assert disagree == sorted(disagree, reverse=True)
    expect(page.get_by_role("button", name="More problems")).to_be_hidden()
    table.get_by_role("link", name="1500_B. Pairs").click()
    expect(page.locator("h1")).to_have_text("1500_B. Pairs")
    expect(page.locator("main .sentence")).to_have_text(
        "3 of 4 runs solved it; 3 of 4 answers were accepted."
    )
    expect(page.get_by_label("Prompt", exact=True)).to_contain_text("Mirror signs")
    page.get_by_role("link", name="Sample 0 of other").click()
    expect(page.locator("main")).to_contain_text("wrong_answer")
    page.get_by_role("link", name="All answers to this problem").click()
    expect(page.get_by_role("region", name="Answers").locator("tbody tr")).to_have_count(4)


def test_the_problems_that_no_run_solves_are_one_click_away(address: str, page: Page) -> None:
    open_at(page, f"{address}/")
    page.get_by_role("link", name="Problems of codecontests_valid").click()
    expect(page.locator("h1")).to_have_text("Problems of codecontests_valid")
    rows = page.get_by_role("region", name="Problems by runs").locator("tbody tr")
    shares = [row.locator("td").all_inner_texts() for row in rows.all()]
    unsolved = [{*row} <= {"0.0\u00a0%", "–"} for row in shares]
    assert 0 < sum(unsolved) < len(unsolved)
    assert unsolved == sorted(unsolved, reverse=True)


def test_from_the_matrix_to_a_flip_by_keyboard_and_back_by_its_address(
    address: str, visit: Visit
) -> None:
    page, _watch = visit()
    open_at(page, f"{address}/{PAIR}")
    page.get_by_role("button", name="1 samples: success in base, wrong_answer in tuned").focus()
    page.keyboard.press("Enter")
    row = page.get_by_role("region", name="Samples").locator("tr.row")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("lost")
    expect(row.locator("a")).to_be_focused()
    page.keyboard.press("Enter")
    opened = page.locator(".opened article")
    expect(opened.get_by_label("Code that was judged, base")).to_contain_text("- # made by base")
    expect(opened.get_by_label("Code that was judged, tuned")).to_contain_text("+ # made by tuned")
    expect(opened).to_contain_text("Every case passed.")
    expect(opened.get_by_label("Actual")).to_have_text("tuned")
    where = page.url
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("open the next sample")
    page.keyboard.press("Escape")
    expect(opened).to_have_count(1)
    page.emulate_media(media="print")
    expect(page.get_by_role("region", name="Statuses").locator("button").first).to_be_visible()
    page.emulate_media(media="screen")
    page.keyboard.press("Escape")
    expect(opened).to_have_count(0)
    expect(row.locator("a")).to_be_focused()
    other, _ = visit()
    open_at(other, where)
    expect(other.locator(".opened article h3").first).to_have_text("1501_A. Pairs")
    expect(other.get_by_label("Status in base")).to_have_value("success")
    other.keyboard.press("Escape")
    other.get_by_role("button", name="All slices").click()
    other.get_by_label("Show").select_option("gained")
    other.get_by_label("Status in base").select_option("")
    other.get_by_label("Status in tuned").select_option("")
    rows = other.get_by_role("region", name="Samples").locator("tr.row")
    expect(rows).to_have_count(5)
    other.keyboard.press("j")


def test_a_choice_made_while_the_list_of_another_data_set_loads_is_kept(
    address: str, page: Page
) -> None:
    open_at(page, f"{address}/{PAIR}")
    held: list[Route] = []
    page.route("**/api/compare/flips*", lambda route: held.append(route))
    page.get_by_label("Data set").select_option("humaneval")
    page.get_by_label("Show").select_option("all")
    until_asked(page, held, [None, "all"])
    for route in reversed(held):
        route.continue_()
    expect(page.locator("tr.row").first).to_be_visible()
    expect(page.get_by_label("Data set")).to_have_value("humaneval")
    expect(page.get_by_label("Show")).to_have_value("all")
    expect(page).to_have_url(re.compile("dataset=humaneval&kind=all$"))
    page.get_by_label("Show").select_option("lost")
    page.evaluate("location.hash = '#/history'")
    expect(page.locator("h1")).to_have_text("History")
    until_asked(page, held, [None, "all", "lost"])
    held[-1].continue_()
    page.wait_for_timeout(300)
    assert page.url.endswith("#/history")


def until_asked(page: Page, held: list[Route], kinds: list[str | None]) -> None:
    """Wait until the page has asked for lists of these kinds, in this order."""
    while len(held) < len(kinds):
        page.wait_for_timeout(20)
    queries = [dict(parse_qsl(urlsplit(route.request.url).query)) for route in held]
    assert [query.get("kind") for query in queries] == kinds


def test_slices_show_their_flips(address: str, page: Page) -> None:
    open_at(page, f"{address}/{PAIR}")
    page.locator("summary", has_text="Slices").click()
    table = page.get_by_role("region", name="Slices")
    table.get_by_role("button", name="hard").click()
    status = page.locator("main p[role=status]").last
    expect(status).to_contain_text("difficulty hard")
    hard = page.get_by_role("region", name="Samples").locator("tr.row").count()
    page.get_by_role("button", name="All slices").click()
    expect(status).not_to_contain_text("difficulty")
    assert 0 < hard < page.get_by_role("region", name="Samples").locator("tr.row").count()


def test_the_page_and_the_json_agree_to_the_last_printed_digit(
    urls: dict[str, str], page: Page, runs: Path
) -> None:
    document = json.loads((runs / "found.json").read_text())["comparisons"][0]["datasets"]
    open_at(page, urls["pair"])
    for dataset, one in document.items():
        accepted = one["accepted_at_1"]
        low, high = accepted["ci95"]
        expected = [
            *(dataset, "accepted@1", str(accepted["problems"])),
            *(f"{100 * accepted['first']:.1f}\u00a0%", f"{100 * accepted['second']:.1f}\u00a0%"),
            f"{100 * accepted['difference']:+.1f}",
            f"{100 * low:+.1f} … {100 * high:+.1f}",
            *(f"{accepted['p_value']:.3g}", f"{100 * accepted['detectable']:.1f}"),
            f"{one['samples_gained']}/{one['samples_lost']}",
        ]
        assert cells(page, "tuned against base", dataset) == expected
