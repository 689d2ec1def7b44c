"""Hostile text of models, programs and users is displayed, and has no other effect (XSS).

Checked for the aggregator's page, and for the report that a published run leaves as a file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from redis import Redis

from shared.extraction import extract
from shared.ledger import Ledger
from shared.run_record import RunState
from tests.page import hostile
from tests.page.compared import until_known, wait
from tests.page.conftest import Visit, new_page
from tests.page.hostile import LARGE, RUN, TEXTS
from tests.page.quiet import MOST, Watch, assert_quiet, path, shown
from tests.page.views import choose, open_at

pytestmark = pytest.mark.browser

REPORT = pytest.param("report", marks=pytest.mark.nightly)
USUAL = ("markup",)
EVERYWHERE = pytest.mark.parametrize("place", ["aggregator", REPORT], indirect=True)


@dataclass(frozen=True)
class Place:
    """A page: ``url`` is without what follows ``#``, ``home`` all that it may fetch begins with."""

    url: str
    home: str


@pytest.fixture(scope="module")
def run(books: Redis, address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the published run ``RUN``, whose id is hostile, too."""
    folder = tmp_path_factory.mktemp("run") / "out"
    ledger = hostile.begin(books, RUN, str(folder), USUAL)
    hostile.judge_all(ledger, large=USUAL)
    ledger.set_state(RunState.JUDGED)
    wait(ledger)
    return folder


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, address: str, run: Path) -> Place:
    if request.param == "aggregator":
        return Place(f"{address}/", f"{address}/")
    report = (run / "report.html").as_uri()
    return Place(report, report)


@pytest.fixture(scope="module")
def reader(browser: Browser, place: Place) -> Iterator[tuple[Page, Watch]]:
    """A page that goes from sample to sample as a reader does, without being loaded again."""
    page, watch = new_page(browser)
    page.goto(place.url)
    yield page, watch
    page.context.close()


def sample_path(name: str) -> str:
    """The address of the sample of a text."""
    return path(RUN, TEXTS[name], TEXTS[name], "0")


# The texts of a sample's boxes and of its recorded cases' boxes, by label.
_BOXES = """() => {
  const found = { sample: {}, cases: {} };
  for (const box of document.querySelectorAll("main [aria-label]"))
    found[box.closest("div.cases") ? "cases" : "sample"][box.getAttribute("aria-label")] =
      box.textContent;
  return found;
}"""


def listed(page: Page) -> str:
    """What the sample browser says once it has an answer."""
    status = page.locator("main p[role=status]")
    expect(status).not_to_be_empty()
    return status.inner_text()


def test_the_runs(address: str, run: Path, visit: Visit) -> None:
    page, watch = visit()
    open_at(page, address)
    expect(page.locator(".runs tbody th a bdi")).to_have_text(shown(RUN))
    page.locator(".runs tbody th a").click()
    expect(page.locator("h1 bdi")).to_have_text(shown(RUN))
    assert_quiet(page, watch, f"{address}/")


@EVERYWHERE
def test_a_run_and_its_samples(place: Place, visit: Visit) -> None:
    page, watch = visit()
    open_at(page, place.url + path(RUN))
    assert listed(page) == f"Samples 1 to {len(TEXTS) + len(USUAL)}"
    names = set(page.locator(".intervals th bdi").all_text_contents())
    assert names >= {shown(text) for text in TEXTS.values()}
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    for row in page.locator("tbody a").all()[::40]:
        row.hover()
    assert_quiet(page, watch, place.home)
    open_at(page, place.url + path(RUN, "large", "markup", "0"))
    assert_quiet(page, watch, place.home)


@EVERYWHERE
def test_samples_and_their_recorded_cases(place: Place, reader: tuple[Page, Watch]) -> None:
    page, watch = reader
    changed = []
    for name, text in TEXTS.items():
        page.goto(place.url + sample_path(name))
        expect(page.locator("h1 bdi")).to_have_text(shown(text))
        recorded = place.url.startswith("http")  # a report has no recorded cases
        if recorded:
            page.locator("div.cases summary").click()
            expect(page.locator("div.cases").get_by_label("Actual", exact=True)).to_be_visible()
        boxes = page.evaluate(_BOXES)
        expected = dict.fromkeys(("Prompt", "Input", "Expected", "Standard error"), shown(text))
        expected["Actual"] = shown(text + "!")
        expected["Completion"] = shown(f"{text}\n```python\n{text}\n```\n{text}")
        cases = dict.fromkeys(("Input", "Standard error", "Compiler"), shown(text))
        cases["Actual"] = shown(text + "!")
        for where, texts in (("sample", expected), ("cases", cases if recorded else {})):
            changed += [
                (name, where, label) for label in texts if boxes[where].get(label) != texts[label]
            ]
        assert_quiet(page, watch, place.home)
    assert changed == []


def test_the_history_of_hostile_runs(address: str, run: Path, visit: Visit) -> None:
    page, watch = visit()
    open_at(page, f"{address}/#/history")
    expect(page.locator("article.trend")).to_have_count(len({*TEXTS.values(), "large"}))
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    expect(page.locator("article.trend tbody tr").first).to_be_visible()
    assert_quiet(page, watch, address)


@pytest.mark.parametrize("names", [USUAL, pytest.param(tuple(LARGE), marks=pytest.mark.nightly)])
def test_large_samples(
    names: Sequence[str], address: str, books: Redis, run: Path, visit: Visit
) -> None:
    """Of a text there is a part, so that no text makes the page slow, whatever it consists of."""
    page, watch = visit()
    if names == USUAL:
        large = RUN
    else:
        large = "large"
        hostile.judge_all(hostile.begin(books, large, "", names), large=names)
        until_known(address, f"large/samples/large/{names[-1]}/0")
    for name in names:
        text = LARGE[name]
        open_at(page, f"{address}/{path(large, 'large', name, '0')}")
        assert page.evaluate(_BOXES)["sample"]["Prompt"] == shown(text)
        # Prompt, completion, four texts of the failed case, and the completion's code, if any.
        code = extract(hostile.completion_with(text)).code
        assert page.get_by_text(f"The first {MOST} of").count() == 6 + (len(code) > MOST), name
        assert page.evaluate("document.querySelectorAll('*').length") < 50_000, name
        assert_quiet(page, watch, f"{address}/")
    if names != USUAL:
        Ledger(books, large).delete()


_TYPE = """async (box, texts) => {
  for (const text of texts) {
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise(requestAnimationFrame);
  }
}"""


@EVERYWHERE
def test_search_and_filter(place: Place, visit: Visit) -> None:
    page, watch = visit()
    open_at(page, place.url + path(RUN))
    typed = [text[:200] for text in TEXTS.values()]
    page.get_by_label("Search").evaluate(_TYPE, typed)
    assert_quiet(page, watch, place.home)
    page.get_by_label("Search").fill("")
    for name in ("image", "override", "prototype"):
        choose(page, "Data set", TEXTS[name])
        expect(page.locator("tr.row")).to_have_count(1)
        expect(page.locator("tr.row a bdi")).to_have_text(shown(TEXTS[name]))
        assert page.locator("tr.row a bdi").text_content() == shown(TEXTS[name])
        choose(page, "Data set", TEXTS[name], on=False)
    assert_quiet(page, watch, place.home)


LINKS = [
    "#javascript:canary=1",
    "#/<img src=x onerror=canary=1>",
    "#/run/<script>canary=1</script>",
    "#/run/%E0%A4%A",
    "#/run/%00/%2e%2e/%2e%2e/0",
    "#/run/" + "x" * 20_000,
    "#/run/a/b/c/<svg onload=canary=1>",
    "?<script>canary=1</script>#/run/__proto__/__proto__/__proto__/0",
]
QUERIES = ["q=%3Cscript%3Ecanary%3D1%3C%2Fscript%3E", "status=%3Cimg%3E"]


@EVERYWHERE
def test_links_of_somebody_else(place: Place, reader: tuple[Page, Watch]) -> None:
    page, watch = reader
    for where in LINKS:
        open_at(page, place.url + where)
        assert_quiet(page, watch, place.home)
    for query in QUERIES:
        open_at(page, f'{place.url}{path(RUN)}?{query}&tag=<b>&sort="><script>')
        assert listed(page)
        assert_quiet(page, watch, place.home)


@EVERYWHERE
def test_a_name_does_not_reorder_what_stands_around_it(
    place: Place, reader: tuple[Page, Watch]
) -> None:
    page, _watch = reader
    for name in ("hebrew", "override", "unclosed"):
        open_at(page, place.url + sample_path(name))
        line = page.locator("main p").first
        left = line.locator("bdi").first.bounding_box()
        right = line.locator(".status").bounding_box()
        assert left and right
        assert left["x"] + left["width"] <= right["x"]
    styles = "all => all.map(one => getComputedStyle(one).unicodeBidi)"
    assert set(page.locator("bdi").evaluate_all(styles)) == {"isolate"}
    assert set(page.locator("pre").evaluate_all(styles)) == {"plaintext"}


@EVERYWHERE
def test_marks_stay_in_their_row(place: Place, reader: tuple[Page, Watch]) -> None:
    page, _watch = reader
    open_at(page, f"{place.url}{path(RUN)}?{urlencode({'dataset': TEXTS['marks']})}")
    expect(page.locator("tr.row")).to_have_count(1)
    assert "0301 0489" in (page.locator("tr.row bdi").first.text_content() or "")
    assert page.evaluate("getComputedStyle(document.querySelector('tr.row td')).overflow") == "clip"


# A page that makes markup of data, as somebody might write it one day.
_MARKUP = """
function markup(node, ...children) {
  for (const child of children)
    if (typeof child === "string") node.insertAdjacentHTML("beforeend", child);
    else node.append(child);
}
"""


def _as_markup(route: Route) -> None:
    text = route.fetch().text().replace("node.append(", "markup(node, ")
    route.fulfill(body=text + _MARKUP, content_type="text/javascript")


def test_markup_of_data_would_be_noticed(address: str, run: Path, browser: Browser) -> None:
    page, watch = new_page(browser)  # where errors are expected
    page.route("**/static/dom.js", _as_markup)
    open_at(page, f"{address}/{sample_path('image')}")
    expect(page.locator(".made").first).to_be_attached()
    while len(watch.errors) < 2:
        page.wait_for_timeout(20)
    with pytest.raises(AssertionError):
        assert_quiet(page, watch, f"{address}/")
    assert page.evaluate("typeof canary") == "undefined"  # the policy still stands in the way
    assert any("script-src" in line for line in watch.errors)
    assert any("img-src" in line for line in watch.errors)
    page.context.close()
