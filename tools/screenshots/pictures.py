"""Screenshots of the web page in headless Chromium."""

import os
import shutil
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright, expect

from tools.screenshots.ledger_runs import CHECKPOINTS, FINISHED

WIDTH = 1280
_MAX_HEIGHT = 2000
_BASELINE = CHECKPOINTS["step-100"]
_FLIP = "&open=0%2Fcc_test_005"
# Addresses of the pictures that documents show, by the names of their files.
PICTURES = {
    "run-1280-light.png": f"#/run/{FINISHED}",
    "compare-1280-light.png": f"#/compare?runs={_BASELINE},{FINISHED}",
    "flip-1280-light.png": (
        f"#/compare?runs={_BASELINE},{FINISHED}&dataset=codecontests_test&kind=gained{_FLIP}"
    ),
    "history-1280-light.png": "#/history",
}
_PATIENCE_MS = 60_000  # a machine at work on other things is slow
_EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def take(browser: Browser, address: str, name: str, folder: Path) -> Path:
    """Take one picture of the aggregator at ``address``; returns the file."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 900},
        color_scheme="light",
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    view = name.partition("-")[0]
    try:
        page = context.new_page()
        page.goto(f"{address}/{PICTURES[name]}")
        _wait_until_rendered(page, view)
        top = _top(page, view)
        high = min(_MAX_HEIGHT, _height(page) - top)
        page.screenshot(
            path=folder / name,
            full_page=True,
            clip={"x": 0, "y": top, "width": WIDTH, "height": high},
            animations="disabled",
        )
        return folder / name
    finally:
        context.close()


def _wait_until_rendered(page: Page, view: str) -> None:
    expect(page.locator("main h1")).to_be_visible(timeout=_PATIENCE_MS)
    if view == "run":
        expect(page.locator("tr.row").last).to_be_visible(timeout=_PATIENCE_MS)
    if view == "history":  # the gate's verdicts come one by one
        expect(page.locator("td:text-is('…')")).to_have_count(0, timeout=_PATIENCE_MS)


def _top(page: Page, view: str) -> int:
    """Where the picture begins: of a flip, its two sides are below the rest of the comparison."""
    if view != "flip":
        return 0
    expect(page.locator(".opened h3").nth(1)).to_be_visible(timeout=_PATIENCE_MS)
    return int(
        page.evaluate("scrollY + document.querySelector('.opened').getBoundingClientRect().y")
    )


def _height(page: Page) -> int:
    """Height of the content in pixels, which is often less than the window's."""
    return int(
        page.evaluate("scrollY + document.querySelector('main').getBoundingClientRect().bottom")
    )


# Chromium of the distribution, not Playwright's


def find_chromium() -> Path | None:
    """Find Chromium on the PATH; None if it is not installed."""
    found = next(filter(None, map(shutil.which, _EXECUTABLES)), None)
    return None if found is None else Path(found)


def launch(playwright: Playwright, executable: Path) -> Browser:
    """Launch Chromium headless; its own sandbox does not work for root."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(
        executable_path=executable, args=[*flags, "--disable-dev-shm-usage"]
    )
