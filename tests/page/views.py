"""Checks of every view: reached by the keyboard, whole and readable; and the boxes of a choice."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from playwright.sync_api import Page, expect

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


Looks = tuple[int, Literal["light", "dark"]]


_RECORD_FOCUS = """() => {
  const seen = []; // an update would remove a mark in an attribute
  window.reached = [];
  addEventListener("focusin", ({ target }) => {
    const style = getComputedStyle(target);
    if (!seen.includes(target)) seen.push(target);
    reached.push({
      seen: seen.indexOf(target) + 1,
      visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
      inSight: target.checkVisibility() && target.getBoundingClientRect().left >= 0,
    });
  });
}"""
_REACHABLE = """[...document.querySelectorAll(
  "a[href], button:enabled, input, select, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility()).length"""


def open_at(page: Page, url: str) -> None:
    """Load a view anew, and wait until it shows something."""
    page.goto("about:blank")
    page.goto(url)
    expect(page.locator("main h1")).to_be_visible()


def assert_reached_by_keyboard(page: Page, view: str) -> None:
    """Each control has a name, and Tab reaches it once, in sight and with its focus shown."""
    session = page.context.new_cdp_session(page)
    nodes = [one for one in session.send("Accessibility.getFullAXTree")["nodes"] if _focusable(one)]
    session.detach()
    assert nodes, view
    nameless = [node["role"]["value"] for node in nodes if not node["name"]["value"].strip()]
    assert nameless == [], view
    expected = page.evaluate(_REACHABLE)
    page.evaluate(_RECORD_FOCUS)
    for _ in range(expected):
        page.keyboard.press("Tab")
    reached = page.evaluate("reached")
    assert all(one["visible"] and one["inSight"] for one in reached), view
    assert [one["seen"] for one in reached] == list(range(1, expected + 1)), view


def _focusable(node: dict[str, Any]) -> bool:
    named = {one["name"]: one["value"].get("value") for one in node.get("properties", [])}
    role = node.get("role", {}).get("value")
    return bool(named.get("focusable")) and role not in ("RootWebArea", "main")


def assert_readable_in(page: Page, looks: Iterable[Looks], more_than: int) -> None:
    """``assert_readable`` with all folds open at each width and in each theme, loaded once."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    for width, theme in looks:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme)
        assert_readable(page, more_than)


def assert_readable(page: Page, more_than: int) -> None:
    """No sideways scrolling, nothing cut off, and every text contrasts as WCAG's AA wants it.

    Args:
        page: The view.
        more_than: It has more texts than these.
    """
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    texts = page.evaluate(CONTRAST)
    assert len(texts) > more_than
    assert [text for text in texts if text["ratio"] < text["least"]] == []


def choose(page: Page, label: str, value: str, on: bool = True) -> None:
    """Tick the box of a value (or clear it), as a user does: open the choice, press the box."""
    summary = page.locator("details.choice > summary", has_text=label)
    choice = summary.locator("..")
    expect(choice).to_be_visible()
    if choice.get_attribute("open") is None:
        summary.click()
    box = choice.locator(f"input[value={_quoted(value)}]")
    box.set_checked(on)


def _quoted(value: str) -> str:
    """The parameter's form of a value, percent-encoded, as a string of CSS."""
    return '"' + quote(value, safe="!'()*-._~") + '"'
