"""The boxes of a choice on a run's page."""

from urllib.parse import quote

from playwright.sync_api import Page, expect


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
