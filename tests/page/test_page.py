"""The page in a browser: desktop and phone, light and dark theme, keyboard only."""

import csv
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Download, Page, Route, expect
from redis import Redis

from services.aggregator.index.rows import SampleRow
from services.aggregator.report import write_report
from shared.artifacts import OutputFolder
from shared.finished_run import open_run
from shared.ledger import Ledger
from shared.run_record import OutageReport, RunnerReport, RunState
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.aggregator import runs
from tests.aggregator.process import Aggregator
from tests.conftest import RedisServer
from tests.page import plain
from tests.page.compared import until_known
from tests.page.conftest import Visit
from tests.page.views import Looks, assert_reached_by_keyboard, assert_readable_in, choose, open_at
from tests.shared.ledgers import problem

pytestmark = pytest.mark.browser

SAMPLE = "#/run/done/codecontests_valid/codecontests_valid_001/0"
VIEWS = {
    "runs": "",
    "run": "#/run/done",
    "metrics": "#/run/done/metrics",
    "slices": "#/run/done/slices",
    "performance": "#/run/done/performance",
    "setup": "#/run/done/setup",
    "sample": SAMPLE,
    "missing": "#/run/none",
    "report": "report.html",
    "report_sample": f"report.html{SAMPLE}",
}
# Views of which other files test keyboard and readability.
ELSEWHERE = {
    "in_progress": "#/run/moving",
    "compare": "#/compare?runs=done,moving&kind=all&open=0%2Fcodecontests_valid_001",
    "problems": "#/problems/codecontests_valid",
    "problem": "#/problem/codecontests_valid/codecontests_valid_001",
    "history": "#/history",
}
# Each width and each theme once; the other combinations, and the colours by axe-core, nightly.
EVERY_LOOK = pytest.mark.parametrize(
    ("looks", "colours"),
    [
        pytest.param([(1280, "light"), (390, "dark")], False, id="usual"),
        pytest.param([(1280, "dark"), (390, "light")], True, id="all", marks=pytest.mark.nightly),
    ],
)


@pytest.fixture(scope="module", autouse=True)
def report(books: Redis, address: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """``done`` is published, ``moving`` has a fifth of its verdicts; returns the report's URL."""
    folder = tmp_path_factory.mktemp("runs")
    plain.publish_one_of_two(books, folder)
    return (folder / "done" / "report.html").as_uri()


@pytest.fixture(scope="module")
def urls(address: str, report: str) -> dict[str, str]:
    """The address of each view."""
    homes = {False: f"{address}/", True: report}
    return {
        view: homes[where.startswith("report.html")] + where.removeprefix("report.html")
        for view, where in VIEWS.items()
    }


def show(page: Page, url: str) -> None:
    """Load a view anew."""
    open_at(page, url)
    if page.locator(".samples").count():
        expect(page.locator("tr.row")).not_to_have_count(0)


def axe_findings(page: Page, *, colours: bool = False) -> list[str]:
    """Each rule of WCAG 2.2 A and AA, or best practice, that is broken, with an element."""
    rules = {} if colours else {"color-contrast": {"enabled": False}}  # most of the time
    options = {"resultTypes": ["violations"], "preload": False, "rules": rules}
    broken = Axe().run(page, options=options).response["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in broken]


@EVERY_LOOK
@pytest.mark.timeout(600)
def test_every_view_is_reached_by_keyboard_readable_and_without_findings(
    urls: dict[str, str], address: str, page: Page, looks: list[Looks], colours: bool
) -> None:
    findings = {}
    for view, url in urls.items():
        page.set_viewport_size({"width": 1280, "height": 900})
        show(page, url)
        expect(page.locator("main")).not_to_contain_text("Loading")
        assert_reached_by_keyboard(page, view)
        assert_readable_in(page, looks, 3)
        findings[view] = axe_findings(page, colours=colours)
    for view, where in ELSEWHERE.items():
        show(page, f"{address}/{where}")
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        findings[view] = axe_findings(page, colours=colours)
    assert {view: rules for view, rules in findings.items() if rules} == {}
    show(page, urls["sample"])
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert axe_findings(page) == []


@pytest.mark.parametrize("view", ["run", "report"])
def test_lower_bounds_and_problems_with_many_right_answers_are_marked(
    view: str, urls: dict[str, str], page: Page
) -> None:
    home = urls[view].partition("#")[0]
    show(page, f"{home}#/run/done/metrics")
    card = page.get_by_role("region", name="codecontests_valid")
    expect(card.locator("dl")).to_contain_text("≥ 0.")
    expect(card).to_contain_text("lower bounds for")
    metrics = page.get_by_role("region", name="Metrics")
    expect(metrics.locator("tr", has_text="pass ratio, mean")).to_contain_text("≥ 0.")
    expect(metrics.locator("tr", has_text="accepted@1")).not_to_contain_text("≥")
    for label in ("if cases not run pass", "with one right answer", "problems with many"):
        expect(metrics).to_contain_text(label)
    page.get_by_role("link", name="Slices").click()
    expect(page.get_by_role("region", name="Slices of codecontests_valid")).to_contain_text("≥ 0.")
    page.get_by_role("link", name="Samples").click()
    choose(page, "Status", "timeout")
    choose(page, "Data set", "codecontests_valid")
    expect(page.locator("tr.row").first).to_contain_text("1 not run")
    page.locator("tr.row a").first.click()
    expect(page.locator("dl.facts")).to_contain_text("cases not run")
    expect(page.locator("main")).to_contain_text("Several outputs are right for this problem")
    expect(page.locator("dl.facts")).to_contain_text("many_answers")


def test_the_cases_of_a_sample(address: str, page: Page) -> None:
    show(page, f"{address}/{SAMPLE}")
    table = page.get_by_role("group", name="Cases")
    places = table.locator("tbody th")
    assert places.all_text_contents()[:5] == ["20", "40", "59", "0", "1"]  # as exports count
    first = table.locator("tbody tr").first
    assert first.locator("td").all_text_contents()[1:] == ["-11", "0.012", "0.011", "9.5", "–"]
    expect(page.locator("div.cases h2")).to_contain_text("60 recorded, of 2")
    code = page.get_by_role("group", name="Code that was judged")
    assert code.locator(".literal").count() > 2
    table.locator("summary").first.click()
    expect(table.get_by_label("Input", exact=True)).to_have_text("4\nnoon noon noon noon\n")
    expect(table.get_by_label("Actual", exact=True)).to_have_text("3\nsame\n")
    expect(table.get_by_label("Standard error", exact=True)).to_contain_text("KeyError: 7")
    expect(places).to_have_count(50)
    page.get_by_role("button", name="More cases").click()
    expect(places).to_have_count(60)
    expect(page.get_by_role("button", name="More cases")).to_be_hidden()


def stored(download: Download) -> str:
    return Path(download.path()).read_text(encoding="utf-8")


@pytest.mark.parametrize("view", ["sample", "report_sample"])
def test_texts_are_copied_and_downloaded(view: str, urls: dict[str, str], page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    show(page, urls[view])
    for what, begin in (
        ("the failing case", '{\n  "case_index": 1,'),
        ("the code", "# Count the pairs."),
        ("the completion", "We look up the reverse of each word.\n"),
        ("the prompt", "Mirror signs\n"),
    ):
        with page.expect_download() as got:
            page.get_by_role("button", name=f"Download {what}").click()
        text = stored(got.value)
        assert text.startswith(begin)
        assert got.value.suggested_filename.startswith("codecontests_valid_001-0-")
        copy = page.get_by_role("button", name=f"Copy {what}")
        copy.click()
        expect(copy.locator("xpath=..").get_by_role("status")).to_have_text("Copied.")
        expect(copy).to_be_focused()
        assert page.evaluate("navigator.clipboard.readText()") == text


def test_the_prompt_is_shown_as_it_was_sent(address: str, report: str, page: Page) -> None:
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


@pytest.mark.parametrize("view", ["run", "report"])
def test_the_filtered_samples_are_downloaded(view: str, urls: dict[str, str], page: Page) -> None:
    show(page, f"{urls[view].partition('#')[0]}#/run/done?status=wrong_answer%2Ctimeout")
    wanted = {"wrong_answer", "timeout"}
    with page.expect_download() as got:
        page.get_by_role("button", name="Download these samples as csv").click()
    rows = list(csv.DictReader(stored(got.value).splitlines()))
    with page.expect_download() as got:
        page.get_by_role("button", name="Download these samples as jsonl").click()
    lines = [json.loads(line) for line in stored(got.value).splitlines()]
    assert {row["final_status"] for row in rows} == wanted
    assert set(rows[0]) == set(lines[0]) <= set(SampleRow.model_fields)
    key = ("dataset", "problem_id", "sample_index")
    assert [[str(one[name]) for name in key] for one in lines] == [
        [row[name] for name in key] for row in rows
    ]
    counts = page.locator("main h2", has_text="Samples").first.inner_text().split()
    assert len(rows) == int(counts[-1])


def scrolled_to(page: Page, place: float) -> None:
    give_up = time.monotonic() + 60
    while abs(page.evaluate("scrollY") - place) > 50:
        assert time.monotonic() < give_up, page.evaluate("scrollY")
        page.wait_for_timeout(20)


def test_a_sample_opens_at_its_top_and_back_returns_to_the_place(address: str, page: Page) -> None:
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
    address: str, page: Page
) -> None:
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
    page.go_back()  # over the end of a page
    expect(heading).to_have_text("humaneval_010")
    expect(page.get_by_role("link", name="Next sample")).to_be_visible()
    page.keyboard.press("j")
    expect(heading).to_have_text("humaneval_009")
    page.reload()  # as who was sent the link
    expect(page.get_by_role("link", name="Next sample")).to_be_visible()
    page.keyboard.press("j")
    expect(heading).to_have_text("humaneval_008")
    page.keyboard.press("Escape")
    expect(heading).to_have_text("done")
    expect(page.locator("tr.row a").first).to_have_text("humaneval_009")
    page.get_by_role("button", name="Previous").click()
    expect(page.locator("tr.row a").first).to_have_text("humaneval_059")
    page.locator("tr.row a").first.click()
    expect(heading).to_have_text("humaneval_059")
    assert page.get_by_role("link", name="Previous sample").count() == 0


def test_what_could_not_be_judged_is_marked_with_what_it_could_change(
    address: str, page: Page
) -> None:
    show(page, f"{address}/{VIEWS['run']}")
    errors = len(range(list(FinalStatus).index(FinalStatus.API_ERROR), 120, len(FinalStatus)))
    text = f"{120 - errors} of 120 judged, {errors} could not be judged (api_error): incomplete"
    expect(page.locator("div.incomplete.number").first).to_have_text(text)
    row = page.locator(".intervals tbody tr").first
    expect(row).to_contain_text("not judged")
    expect(row).to_contain_text("depending on them")
    label = row.get_by_role("img").get_attribute("aria-label") or ""
    assert "with the samples that were not judged" in label
    assert row.locator("rect.bounds").count() == 1
    show(page, f"{address}/")
    row = page.locator("#run-done")
    expect(row).to_contain_text(text)
    expect(row).to_contain_text("with those not judged")


def test_the_table_of_runs_sorts_by_every_column(address: str, page: Page) -> None:
    show(page, f"{address}/")
    rows = page.locator(".runs tbody tr")
    names = rows.locator("th a").all_inner_texts()
    by_run = page.locator(".runs thead button", has_text=re.compile("^run$"))
    by_run.click()
    heading = page.locator(".runs th[aria-sort]")
    expect(heading).to_have_text("run")
    assert rows.locator("th a").all_inner_texts() == sorted(names)
    by_run.click()
    assert rows.locator("th a").all_inner_texts() == sorted(names, reverse=True)
    page.get_by_role("button", name="codecontests_valid", exact=True).click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    shares = [
        float(text.split("\u00a0")[0])
        for text in rows.locator("td:nth-child(6) b").all_inner_texts()
    ]
    assert shares == sorted(shares, reverse=True)
    by_run.evaluate("one => (one.kept = true)")
    for _ in range(2):  # an update keeps the headings, one of which may have the focus
        with page.expect_response("**/api/runs"):
            pass
    assert by_run.evaluate("one => one.kept")


def test_runs_are_found_by_text_and_chosen_by_keyboard(address: str, page: Page) -> None:
    show(page, f"{address}/")
    cards = page.locator(".runs tbody tr")
    many = cards.count()
    page.keyboard.press("/")
    page.keyboard.type("OVIN")
    expect(cards).to_have_count(1)
    expect(page.locator("main p[role=status]")).to_have_text(f"1 of {many} runs")
    page.reload()
    expect(page.get_by_label("Search")).to_have_value("OVIN")
    expect(cards).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("c")
    expect(page.get_by_label("Compare moving")).to_be_checked()
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    expect(cards).to_have_count(many)
    expect(page.get_by_label("Compare moving")).to_be_checked()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".run h1")).to_be_visible()


def test_a_view_that_comes_too_late_is_not_shown(address: str, page: Page) -> None:
    held: list[Route] = []
    page.route("**/api/runs/done", lambda route: held.append(route))
    page.goto(f"{address}/{VIEWS['run']}")
    while not held:
        page.wait_for_timeout(10)
    page.evaluate(f"location.hash = '{SAMPLE}'")
    expect(page.locator("h1")).to_have_text("codecontests_valid_001")
    with page.expect_response("**/api/runs/done"):
        held[0].continue_()
    page.wait_for_timeout(200)
    assert page.locator("h1").inner_text() == "codecontests_valid_001"
    assert page.url.endswith(SAMPLE)


def test_a_request_that_the_network_ends_is_repeated(address: str, page: Page) -> None:
    page.route("**/api/runs/done", lambda route: route.abort("internetdisconnected"), times=1)
    show(page, f"{address}/{VIEWS['run']}")
    expect(page.locator("h1")).to_have_text("done")


def test_a_run_in_progress_moves_without_being_loaded_again(
    address: str, books: Redis, page: Page
) -> None:
    show(page, f"{address}/#/run/moving")
    page.evaluate("window.same = true")
    expect(page.locator("main")).to_contain_text("of 120 judged")
    expect(page.locator("main")).to_contain_text("running, begun")
    ledger = Ledger(books, "moving")
    plain.judge_some(ledger, 24, 120)
    expect(page.locator("main")).to_contain_text("103 of 120 judged, 17 could not be judged")
    expect(page.locator("main")).not_to_contain_text("incomplete")
    expect(page.locator(".intervals tbody tr").first).to_contain_text("of 60 judged")
    ledger.set_state(RunState.JUDGED)
    expect(page.locator("main")).to_contain_text("incomplete, begun")
    assert page.evaluate("window.same")


def test_the_answers_to_a_problem_are_stepped_through(
    address: str, books: Redis, page: Page
) -> None:
    ledger = runs.begin(books, [problem("d1", "p/1")], "several")
    for index, status in enumerate((FinalStatus.SUCCESS, FinalStatus.TIMEOUT, FinalStatus.SUCCESS)):
        runs.judge(ledger, SampleId("d1", "p/1", index), status)
    until_known(address, "several")
    show(page, f"{address}/#/run/several/d1/p%2F1/0")
    answers = page.get_by_role("navigation", name="Answers to this problem").get_by_role("link")
    expect(answers).to_have_text(["#0 success", "#1 timeout", "#2 success"])
    for index in (1, 2):
        page.keyboard.press("]")
        expect(page.locator("h1")).to_have_text(f"p/1 #{index}")
    page.keyboard.press("[")
    expect(page.locator("h1")).to_have_text("p/1 #1")
    expect(answers.nth(1)).to_have_attribute("aria-current", "page")
    ledger.delete()


def test_a_run_shows_its_health(address: str, books: Redis, page: Page) -> None:
    ledger = plain.begin(books, "ailing", "")
    plain.judge_some(ledger, 0, 9)
    ledger.lock("runner", 600)
    outage = OutageReport(what="no sandbox answers", since=1.0, reason="http_503")
    ledger.report(RunnerReport(at=1.0, outages=[outage]))
    until_known(address, "ailing")
    for view in ("", "#/run/ailing"):
        show(page, f"{address}/{view}")
        expect(page.locator("main")).to_contain_text("no sandbox answers since ")
        expect(page.locator("main")).to_contain_text("(http_503)")
    expect(page.locator("main")).to_contain_text("Waiting: 111 to be generated.")
    ledger.report(RunnerReport(at=1.0, seconds_left=125.0))
    expect(page.locator("main")).to_contain_text("2 min 5 s left")
    expect(page.locator("main")).not_to_contain_text("no sandbox answers")
    ledger.unlock("runner")
    expect(page.locator("main")).to_contain_text("no command since ")
    expect(page.locator("main")).not_to_contain_text(" left")
    ledger.delete()


def test_a_report_needs_no_network_and_names_what_it_lacks(report: str, visit: Visit) -> None:
    page, watch = visit()
    page.goto(report)
    expect(page.locator("h1")).to_have_text("done")
    expect(page.locator("tr.row").first).to_be_visible()
    assert watch.requests == [report]
    page.goto(f"{report}{SAMPLE}")
    for _ in range(2):
        expect(page.locator("h1")).to_have_text("codecontests_valid_001")
        code = page.get_by_role("group", name="Code that was judged")
        expect(code).to_contain_text("# Count the pairs.")
        page.reload()
    boxes = [page.get_by_role("group", name=name).bounding_box() for name in ("Expected", "Actual")]
    assert boxes[0] and boxes[1] and boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    page.goto(f"{report}#/run/done/codecontests_valid/constructor/0")
    expect(page.locator("main")).to_contain_text("does not contain the sample")
    page.goto(f"{report}#/run/other")
    expect(page.locator("main")).to_contain_text("contains no other run")


def test_a_report_without_texts_names_the_files_that_have_them(report: str, page: Page) -> None:
    folder = OutputFolder(report.removeprefix("file://").rpartition("/")[0])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("services.aggregator.report.TEXT_BYTES", 0)
        write_report(open_run(folder.url), folder, "figures.html")
    page.goto(report.replace("report.html", "figures.html"))
    expect(page.locator("main")).to_contain_text("failed case are included for 0 samples")
    expect(page.locator("tr.row").first).to_contain_text("figures alone")
    page.locator("tr.row a").first.click()
    expect(page.locator("main")).to_contain_text("generations.jsonl and verdicts.jsonl have its")
    expect(page.locator("dl")).to_contain_text("output tokens")


@pytest.fixture
def own(redis_server: RedisServer, tmp_path: Path, books: Redis) -> Iterator[Aggregator]:
    """An aggregator that may be killed."""
    if Ledger(books, "broken").state() is None:
        plain.judge_some(plain.begin(books, "broken", str(tmp_path / "out")), 0, 7)
    aggregator = Aggregator(redis_server.url, tmp_path)
    yield aggregator
    aggregator.kill()


@pytest.mark.nightly
def test_an_aggregator_that_went_away_is_told_and_found_again(
    own: Aggregator, redis_server: RedisServer, tmp_path: Path, page: Page
) -> None:
    show(page, f"{own.url}/#/run/broken")
    notice = page.locator("#notice")
    expect(notice).to_be_empty()
    own.kill()
    expect(notice).to_contain_text("The aggregator does not answer since")
    expect(page.locator(".overview")).to_contain_text("connection lost since")
    choose(page, "Status", "timeout")
    expect(page.locator("main p[role=status]")).to_contain_text("The aggregator does not answer")
    (tmp_path / "again").mkdir()
    port = own.url.rpartition(":")[2]
    again = Aggregator(redis_server.url, tmp_path / "again", PORT=port)
    try:
        expect(notice).to_be_empty()
        expect(page.locator(".overview")).not_to_contain_text("connection lost")
        page.get_by_role("button", name="Status: ").click()
        expect(page.locator("tr.row")).to_have_count(7)
    finally:
        again.kill()


def test_the_chart_is_a_table_of_its_numbers(address: str, visit: Visit) -> None:
    page, _watch = visit(390)
    show(page, f"{address}/{VIEWS['run']}")
    table = page.get_by_role("table", name="accepted@1")
    row = table.get_by_role("row").nth(1)
    assert row.get_by_role("rowheader").inner_text() == "codecontests_valid"
    (shown,) = row.locator(".value b").all_inner_texts()
    detail = page.request.get(f"{address}/api/runs/done").json()["datasets"]["codecontests_valid"]
    assert shown == f"{100 * detail['accepted_at_1']:.1f}\u00a0%"
    low, high = (f"{100 * end:.1f}\u00a0%" for end in detail["accepted_at_1_ci95"])
    expect(row.get_by_role("cell").nth(1)).to_contain_text(f"{low} to {high}")
    point, chart = row.locator("circle").bounding_box(), row.locator("svg").bounding_box()
    assert point and chart
    middle = (point["x"] + point["width"] / 2 - chart["x"]) / chart["width"]
    assert middle == pytest.approx(detail["accepted_at_1"], abs=0.005)


def test_what_is_counted_leads_to_what_was_counted(address: str, page: Page) -> None:
    show(page, f"{address}/{VIEWS['run']}")
    page.locator(".samples .keys a", has_text="timeout").click()
    expect(page.locator("tr.row").first).to_contain_text("timeout")
    expect(page.get_by_role("button", name="Status: timeout")).to_be_visible()
    assert page.evaluate("document.querySelector('.samples').getBoundingClientRect().top") < 450
    page.locator(".intervals a", has_text="humaneval").click()
    expect(page.locator("tr.row a").first).to_have_text("humaneval_000")
    page.get_by_role("link", name="Metrics").click()
    part = page.get_by_role("region", name="humaneval")
    part.locator(".keys a", has_text="wrong_answer").click()
    expect(page.locator("tr.row")).to_have_count(8)
    page.go_back()
    half = part.locator(".histogram tr", has_text="0.5 to 0.6").locator("a")
    assert (half.get_attribute("href") or "").endswith(
        "?dataset=humaneval&pass_ratio=0.5..0.599999"
    )
    page.get_by_role("link", name="Slices").click()
    slices = page.get_by_role("region", name="Slices of humaneval")
    expect(slices).to_be_visible()
    links = [a.get_attribute("href") or "" for a in slices.locator("th a").all()]
    assert {link.partition("?")[2] for link in links} == {
        "dataset=humaneval&difficulty=hard",
        "dataset=humaneval&tag=strings",
        "dataset=humaneval&tag=dp",
        "dataset=humaneval&prompt_length=500..999",
    }


def test_an_update_disturbs_no_reader(address: str, books: Redis, page: Page) -> None:
    ledger = plain.begin(books, "growing", "")
    plain.judge_some(ledger, 0, 30)
    until_known(address, "growing")
    show(page, f"{address}/#/run/growing/metrics")
    part = page.get_by_role("region", name="codecontests_valid")
    link = part.locator(".keys a").first
    expect(link).to_have_text("success 5")
    link.focus()
    part.evaluate("one => one.scrollIntoView()")
    page.evaluate("document.querySelector('.intervals').same = true")
    place = (link.bounding_box() or {})["y"]
    plain.judge_some(ledger, 30, 60)
    expect(part.locator(".keys").first).to_contain_text("success 9")
    expect(link).to_be_focused()
    assert (link.bounding_box() or {})["y"] == pytest.approx(place, abs=5)
    assert page.evaluate("document.querySelector('.intervals').same")


@pytest.mark.nightly
def test_print_shows_what_is_folded_in_dark_ink_on_white(address: str, visit: Visit) -> None:
    page, _watch = visit(1280, "dark")
    show(page, f"{address}/{VIEWS['run']}")
    closed = "document.querySelectorAll('details:not([open])').length"
    page.evaluate(f"addEventListener('beforeprint', () => (globalThis.printed = {closed}))")
    before = page.evaluate(closed)
    assert before > 3
    page.pdf()
    assert page.evaluate("globalThis.printed") == 0
    assert page.evaluate(closed) == before
    page.emulate_media(media="print", color_scheme="dark")
    colours = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert page.evaluate(colours) == ["rgb(255, 255, 255)", "rgb(27, 31, 36)"]
    assert page.locator("button:not(.sort):visible, form:visible, .skip:visible").count() == 0
    expect(page.locator("th button.sort").first).to_be_visible()
    expect(page.locator("svg.interval").nth(1)).to_be_visible()
