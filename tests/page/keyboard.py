"""Every control of a view by the keyboard alone, as Chromium describes it to a screen reader."""

from typing import Any

from playwright.sync_api import Page

_FOCUS = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  if (!seen.includes(one)) seen.push(one); // an update would remove a mark in an attribute
  return {
    seen: seen.indexOf(one) + 1, body: one === document.body,
    visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    inSight: one.checkVisibility() && one.getBoundingClientRect().left >= 0,
  };
}"""
_REACHABLE = """[...document.querySelectorAll(
  "a[href], button:enabled, input, select, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility()).length"""


def assert_reached_by_keyboard(page: Page, view: str) -> None:
    """Each control has a name, and Tab reaches it once, in sight and with its focus shown."""
    session = page.context.new_cdp_session(page)
    nodes = [one for one in session.send("Accessibility.getFullAXTree")["nodes"] if _focusable(one)]
    session.detach()
    assert nodes, view
    nameless = [node["role"]["value"] for node in nodes if not node["name"]["value"].strip()]
    assert nameless == [], view
    expected = page.evaluate(_REACHABLE)
    page.evaluate("window.seen = []")
    found = []
    for _ in range(expected):
        page.keyboard.press("Tab")
        found.append(page.evaluate(_FOCUS))
    assert all(one["visible"] and one["inSight"] and not one["body"] for one in found), view
    assert [one["seen"] for one in found] == list(range(1, expected + 1)), view


def _focusable(node: dict[str, Any]) -> bool:
    named = {one["name"]: one["value"].get("value") for one in node.get("properties", [])}
    role = node.get("role", {}).get("value")
    return bool(named.get("focusable")) and role not in ("RootWebArea", "main")
