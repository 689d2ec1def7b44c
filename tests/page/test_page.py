"""The page in a browser: desktop and phone, light and dark theme, keyboard only."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from redis import Redis

from shared.ledger import Ledger
from shared.run_record import RunState
from shared.statuses import FinalStatus
from tests.aggregator.process import Aggregator
from tests.conftest import RedisServer
from tests.page import plain
from tests.page.conftest import Visit

pytestmark = pytest.mark.browser

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
SAMPLE = "#/run/done/codecontests_valid/codecontests_valid_001/0"
VIEWS = {
    "runs": "",
    "run": "#/run/done",
    "sample": SAMPLE,
    "missing": "#/run/none",
    "report": "report.html",
    "report_sample": f"report.html{SAMPLE}",
}
EVERY_VIEW = pytest.mark.parametrize("view", VIEWS)


@pytest.fixture(scope="module", autouse=True)
def report(books: Redis, address: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """``done`` is published, ``moving`` has a fifth of its verdicts; returns the report's URL."""
    folder = tmp_path_factory.mktemp("runs")
    done = plain.begin(books, "done", str(folder / "done"))
    plain.judge_some(done, 0, 2 * plain.PER_DATASET)
    done.set_state(RunState.JUDGED)
    plain.judge_some(plain.begin(books, "moving", str(folder / "moving")), 0, 24)
    give_up = time.monotonic() + 30
    while not ((state := done.state()) and state.published):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return (folder / "done" / "report.html").as_uri()


@pytest.fixture
def url(view: str, address: str, report: str) -> str:
    """Where a view is."""
    where = VIEWS[view]
    in_file = where.removeprefix("report.html")
    return f"{address}/{where}" if in_file == where else report + in_file


def show(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator("main h1")).to_be_visible()
    if page.locator("form").count():
        expect(page.locator("tr.row")).not_to_have_count(0)


@EVERY_VIEW
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_readable(url: str, visit: Visit, width: int, theme: str) -> None:
    """No sideways scrolling, nothing cut off, and every text contrasts as WCAG's AA wants it."""
    page, watch = visit(width, theme)
    show(page, url)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    texts = page.evaluate(CONTRAST)
    assert len(texts) > 3
    assert [text for text in texts if text["ratio"] < text["least"]] == []
    assert watch.errors == []


@pytest.mark.parametrize("view", ["run", "report"])
def test_a_pass_ratio_that_is_a_lower_bound_is_marked(url: str, visit: Visit) -> None:
    page, watch = visit()
    show(page, url)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    card = page.locator("article.card", has_text="codecontests_valid")
    expect(card.locator("dl")).to_contain_text("≥ 0.")
    expect(card).to_contain_text("lower bounds for")
    metrics = page.get_by_role("region", name="Metrics")
    expect(metrics.locator("tr", has_text="pass ratio, mean")).to_contain_text("≥ 0.")
    expect(metrics.locator("tr", has_text="accepted@1")).not_to_contain_text("≥")
    expect(metrics).to_contain_text("if all cases not run failed, passed")
    expect(page.get_by_role("region", name="Parts of codecontests_valid")).to_contain_text("≥ 0.")
    page.get_by_label("Status").select_option("timeout")
    expect(page.locator("tr.row").first).to_contain_text("1 not run")
    page.locator("tr.row a").first.click()
    expect(page.locator("dl.facts")).to_contain_text("cases not run")
    assert watch.errors == []


def test_the_cases_of_a_sample(address: str, visit: Visit) -> None:
    page, watch = visit()
    show(page, f"{address}/{SAMPLE}")
    table = page.get_by_role("group", name="Cases")
    places = table.locator("tbody th")
    assert places.all_text_contents()[:5] == ["21", "41", "60", "1", "2"]
    first = table.locator("tbody tr").first
    assert first.locator("td").all_text_contents()[1:] == ["-11", "0.012", "0.011", "9.5", "–"]
    expect(page.locator("div.cases h2")).to_contain_text("60 recorded, of 2")
    table.locator("summary").first.click()
    expect(table.get_by_label("Input", exact=True)).to_have_text("4\nnoon noon noon noon\n")
    expect(table.get_by_label("Actual", exact=True)).to_have_text("3\nsame\n")
    expect(table.get_by_label("Standard error", exact=True)).to_contain_text("KeyError: 7")
    expect(places).to_have_count(50)
    page.get_by_role("button", name="More cases").click()
    expect(places).to_have_count(60)
    expect(page.get_by_role("button", name="More cases")).to_be_hidden()
    assert watch.errors == []


@pytest.mark.parametrize("view", ["run", "report"])
def test_problems_with_many_right_answers_are_named(url: str, visit: Visit) -> None:
    page, watch = visit()
    show(page, url)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    metrics = page.get_by_role("region", name="Metrics")
    expect(metrics).to_contain_text("of problems with one right answer")
    expect(metrics).to_contain_text("problems with many right answers and no checker")
    page.get_by_label("Data set").select_option("codecontests_valid")
    page.locator("tr.row a").first.click()
    expect(page.locator("main")).to_contain_text("Several outputs are right for this problem")
    expect(page.locator("dl.facts")).to_contain_text("many_answers")
    assert watch.errors == []


def test_the_prompt_is_shown_as_it_was_sent(address: str, report: str, visit: Visit) -> None:
    page, watch = visit()
    heading = page.locator("h2", has_text="Prompt")
    for base in (f"{address}/", report):
        show(page, f"{base}#/run/done/humaneval/humaneval_001/0")
        expect(page.get_by_label("Prompt, system")).to_have_text("You write Python.")
        expect(page.get_by_label("Prompt, user")).to_contain_text("Complete this:")
        expect(page.get_by_label("Prompt, user")).to_contain_text("Mirror signs")
        expect(heading).to_have_text("Prompt, as it was sent")
        show(page, f"{base}{SAMPLE}")
        expect(page.get_by_label("Prompt", exact=True)).to_contain_text("Mirror signs")
        expect(heading).to_contain_text("which the run did not record")
    assert watch.errors == []


def test_contrast_is_really_measured(address: str, visit: Visit) -> None:
    page, _watch = visit()
    show(page, f"{address}/")
    page.evaluate("document.querySelector('h1').style.color = '#999'")
    poor = [text for text in page.evaluate(CONTRAST) if text["ratio"] < text["least"]]
    assert [text["words"] for text in poor] == ["Runs"]
    assert poor[0]["ratio"] == pytest.approx(2.849, abs=0.001)


_FOCUS = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  if (!one.dataset.seen) one.dataset.seen = document.querySelectorAll("[data-seen]").length + 1;
  return {
    seen: Number(one.dataset.seen), body: one === document.body,
    visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    inSight: one.checkVisibility() && one.getBoundingClientRect().left >= 0,
  };
}"""
_REACHABLE = """[...document.querySelectorAll(
  "a[href], button:enabled, input, select, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility()).length"""


@EVERY_VIEW
def test_every_control_is_reached_by_keyboard_and_shows_it(url: str, visit: Visit) -> None:
    page, _watch = visit()
    show(page, url)
    expected = page.evaluate(_REACHABLE)
    found = []
    for _ in range(expected):
        page.keyboard.press("Tab")
        found.append(page.evaluate(_FOCUS))
    assert all(one["visible"] and one["inSight"] and not one["body"] for one in found)
    assert [one["seen"] for one in found] == list(range(1, expected + 1))


@EVERY_VIEW
def test_every_control_has_a_name(url: str, visit: Visit) -> None:
    """As Chromium tells it to a screen reader."""
    page, _watch = visit()
    show(page, url)
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    nodes = [node for node in tree if _focusable(node)]
    assert nodes
    nameless = [node["role"]["value"] for node in nodes if not node["name"]["value"].strip()]
    assert nameless == []


def _focusable(node: dict[str, Any]) -> bool:
    named = {one["name"]: one["value"].get("value") for one in node.get("properties", [])}
    role = node.get("role", {}).get("value")
    return bool(named.get("focusable")) and role not in ("RootWebArea", "main")


def test_the_skip_link_skips(address: str, visit: Visit) -> None:
    page, _watch = visit()
    show(page, f"{address}/{VIEWS['run']}")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url.endswith(VIEWS["run"])


def test_moves_by_keyboard(address: str, visit: Visit) -> None:
    page, _watch = visit()
    show(page, f"{address}/{VIEWS['run']}")
    rows = page.locator("tr.row a")
    page.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("j")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("jk/")
    expect(page.get_by_label("Search")).to_have_value("jk/")
    expect(page.locator("main p[role=status]")).to_have_text("No such sample.")
    page.get_by_label("Search").fill("")
    expect(rows).to_have_count(50)
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("codecontests_valid_000")
    assert page.evaluate("document.activeElement.id") == "main"


def test_pages_are_turned_forth_and_back(address: str, visit: Visit) -> None:
    page, _watch = visit()
    show(page, f"{address}/{VIEWS['run']}")
    status, first = page.locator("main p[role=status]"), page.locator("tr.row a").first
    back, on = page.get_by_role("button", name="Previous"), page.get_by_role("button", name="Next")
    expect(status).to_have_text("Samples 1 to 50; there are more")
    expect(back).to_be_disabled()
    on.click()
    expect(status).to_have_text("Samples 51 to 100; there are more")
    on.click()
    expect(status).to_have_text("Samples 101 to 120")
    expect(first).to_have_text("humaneval_040")
    expect(on).to_be_disabled()
    back.click()
    expect(first).to_have_text("codecontests_valid_050")
    back.click()
    expect(first).to_have_text("codecontests_valid_000")
    expect(back).to_be_disabled()


def test_filters_stay_in_the_address(address: str, visit: Visit) -> None:
    page, _watch = visit()
    show(page, f"{address}/{VIEWS['run']}")
    page.get_by_label("Status").select_option("runtime_error")
    page.get_by_label("Data set").select_option("humaneval")
    page.get_by_label("Order").select_option("desc")
    page.get_by_label("Search").fill("5")
    problems = page.locator("tr.row a")
    expect(problems).to_have_text(["humaneval_054", "humaneval_005"])
    page.reload()
    expect(problems).to_have_text(["humaneval_054", "humaneval_005"])
    expect(page.get_by_label("Data set")).to_have_value("humaneval")
    problems.first.click()
    expect(page.locator("h1")).to_have_text("humaneval_054")
    page.go_back()
    expect(problems).to_have_text(["humaneval_054", "humaneval_005"])


def scrolled_to(page: Page, place: float) -> None:
    give_up = time.monotonic() + 20
    while abs(page.evaluate("scrollY") - place) > 50:
        assert time.monotonic() < give_up, page.evaluate("scrollY")
        page.wait_for_timeout(20)


def test_a_sample_opens_at_its_top_and_back_returns_to_the_place(
    address: str, visit: Visit
) -> None:
    page, _watch = visit()
    show(page, f"{address}/{VIEWS['run']}")
    row = page.locator("tr.row a").nth(40)
    row.scroll_into_view_if_needed()
    place = page.evaluate("scrollY")
    assert place > 500
    row.click()
    expect(page.locator("h1")).to_have_text("codecontests_valid_040")
    scrolled_to(page, 0)
    page.go_back()
    expect(page.locator("h1")).to_have_text("done")
    scrolled_to(page, place)
    page.go_forward()
    expect(page.locator("h1")).to_have_text("codecontests_valid_040")
    scrolled_to(page, 0)


def test_from_sample_to_sample_by_keys_and_back_to_the_same_filters(
    address: str, visit: Visit
) -> None:
    page, watch = visit()
    show(page, f"{address}/{VIEWS['run']}?dataset=humaneval&order=desc")
    heading = page.locator("h1")
    page.locator("tr.row a").nth(48).click()
    expect(heading).to_have_text("humaneval_011")
    page.keyboard.press("j")
    expect(heading).to_have_text("humaneval_010")
    page.keyboard.press("j")  # the first one of the next page
    expect(heading).to_have_text("humaneval_009")
    page.keyboard.press("k")
    expect(heading).to_have_text("humaneval_010")
    page.get_by_role("link", name="Next sample").click()
    expect(heading).to_have_text("humaneval_009")
    page.keyboard.press("Escape")
    expect(heading).to_have_text("done")
    expect(page.locator("tr.row a").first).to_have_text("humaneval_059")
    page.locator("tr.row a").first.click()
    expect(heading).to_have_text("humaneval_059")
    assert page.get_by_role("link", name="Previous sample").count() == 0
    assert watch.errors == []


def test_what_could_not_be_judged_is_marked_with_what_it_could_change(
    address: str, visit: Visit
) -> None:
    page, _watch = visit()
    show(page, f"{address}/{VIEWS['run']}")
    errors = len(range(list(FinalStatus).index(FinalStatus.API_ERROR), 120, len(FinalStatus)))
    text = f"{120 - errors} of 120 judged, {errors} could not be judged (api_error): incomplete"
    expect(page.locator("div.incomplete.number").first).to_have_text(text)
    bounds = page.locator(".card .incomplete").first
    expect(bounds).to_contain_text("not judged: ")
    expect(bounds).to_contain_text("if they passed")


def test_a_link_to_a_sample_can_be_given_away(address: str, visit: Visit) -> None:
    page, _watch = visit()
    show(page, f"{address}/{SAMPLE}")
    for _ in range(2):
        expect(page.locator("h1")).to_have_text("codecontests_valid_001")
        expect(page.get_by_label("Expected")).to_have_text("6\nsame\n", use_inner_text=False)
        expect(page.locator("pre .keyword").first).to_have_text("def")
        expect(page.locator(".lost")).to_have_text(["3\n"])
        page.reload()


def test_a_view_that_comes_too_late_is_not_shown(address: str, visit: Visit) -> None:
    page, _watch = visit()
    held: list[Route] = []
    page.route("**/api/runs/done/timeline", lambda route: held.append(route))
    page.goto(f"{address}/{VIEWS['run']}")
    while not held:
        page.wait_for_timeout(10)
    page.evaluate(f"location.hash = '{SAMPLE}'")
    expect(page.locator("h1")).to_have_text("codecontests_valid_001")
    with page.expect_response("**/timeline"):
        held[0].continue_()
    page.wait_for_timeout(200)
    assert page.locator("h1").inner_text() == "codecontests_valid_001"
    assert page.url.endswith(SAMPLE)


def test_an_unknown_run_is_said_to_be_one(address: str, visit: Visit) -> None:
    page, watch = visit()
    show(page, f"{address}/#/run/none")
    expect(page.locator("main p")).to_contain_text("no run 'none'; there are: done, moving")
    assert watch.errors == []


def test_a_run_in_progress_moves_without_being_loaded_again(
    address: str, books: Redis, visit: Visit
) -> None:
    page, watch = visit()
    show(page, f"{address}/#/run/moving")
    page.evaluate("window.same = true")
    expect(page.locator("main")).to_contain_text("of 120 judged")
    expect(page.locator("main")).to_contain_text("org/model, running")
    ledger = Ledger(books, "moving")
    plain.judge_some(ledger, 24, 120)
    expect(page.locator("main")).to_contain_text("103 of 120 judged, 17 could not be judged")
    expect(page.locator("article").first).to_contain_text("of 60 samples judged")
    ledger.set_state(RunState.JUDGED)
    expect(page.locator("main")).to_contain_text("org/model, incomplete")
    assert page.evaluate("window.same")
    assert watch.errors == []


def test_a_run_that_is_being_published_is_followed_to_its_end(address: str, visit: Visit) -> None:
    page, watch = visit()

    def before_publishing(route: Route) -> None:
        answer = route.fetch()
        document = answer.json()
        document["summary"]["state"] = "judged"
        route.fulfill(response=answer, json=document)

    page.route("**/api/runs/done", before_publishing, times=1)
    show(page, f"{address}/#/run/done")
    expect(page.locator("main")).to_contain_text("org/model, incomplete")
    assert watch.errors == []


@pytest.fixture
def own(redis_server: RedisServer, tmp_path: Path, books: Redis) -> Iterator[Aggregator]:
    """An aggregator that may be killed."""
    plain.judge_some(plain.begin(books, "broken", str(tmp_path / "out")), 0, 7)
    aggregator = Aggregator(redis_server.url, tmp_path)
    yield aggregator
    aggregator.process.kill()
    aggregator.process.communicate()


def test_an_aggregator_that_went_away_is_told_and_found_again(
    own: Aggregator, redis_server: RedisServer, tmp_path: Path, visit: Visit
) -> None:
    page, watch = visit()
    show(page, f"{own.url}/#/run/broken")
    notice = page.locator("#notice")
    expect(notice).to_be_empty()
    own.process.kill()
    expect(notice).to_contain_text("The connection to the aggregator is lost")
    page.get_by_label("Status").select_option("timeout")
    expect(page.locator("main p[role=status]")).to_contain_text("The aggregator does not answer")
    (tmp_path / "again").mkdir()
    port = own.url.rpartition(":")[2]
    again = Aggregator(redis_server.url, tmp_path / "again", PORT=port)
    try:
        expect(notice).to_be_empty()
        page.get_by_label("Status").select_option("")
        expect(page.locator("tr.row")).to_have_count(7)
    finally:
        again.process.kill()
        again.process.communicate()
    assert watch.errors == []
