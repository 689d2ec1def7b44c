"""Screenshots of the web page in headless Chromium: every view, width and theme."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, Playwright, expect

from tools.screenshots.ledger_runs import CHECKPOINTS, FINISHED, IN_PROGRESS

Theme = Literal["light", "dark"]
_SAMPLE = "codecontests_test/cc_test_002/0"  # a wrong answer with both outputs to compare
_BASELINE = CHECKPOINTS["step-100"]
_FLIP = "&open=0%2Fcc_test_005"
_VIEWS = {
    "runs": "",
    "run": f"#/run/{FINISHED}",
    "run-in-progress": f"#/run/{IN_PROGRESS}",
    "sample": f"#/run/{FINISHED}/{_SAMPLE}",
    "compare": f"#/compare?runs={_BASELINE},{FINISHED}",
    "flip": f"#/compare?runs={_BASELINE},{FINISHED}&dataset=codecontests_test&kind=gained{_FLIP}",
    "history": "#/history",
}
_PATIENCE_MS = 60_000  # a machine at work on other things is slow
# Maximum height of a picture in pixels, by width.
_MAX_HEIGHT = {1280: 2000, 390: 2000}


_EXECUTABLES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True)
class Picture:
    view: str
    width: int
    theme: Theme

    @property
    def file(self) -> str:
        return f"{self.view}-{self.width}-{self.theme}.png"


def all_pictures() -> Iterator[Picture]:
    themes: tuple[Theme, Theme] = ("light", "dark")
    for view in _VIEWS:
        for width in _MAX_HEIGHT:
            for theme in themes:
                yield Picture(view, width, theme)


def take(browser: Browser, address: str, picture: Picture, folder: Path) -> Path:
    """Take one picture of the aggregator at ``address``; returns the file."""
    context = browser.new_context(
        viewport={"width": picture.width, "height": 900},
        color_scheme=picture.theme,
        locale="en-GB",
        timezone_id="UTC",
        reduced_motion="reduce",
    )
    try:
        page = context.new_page()
        page.goto(f"{address}/{_VIEWS[picture.view]}")
        _wait_until_rendered(page, picture.view)
        path = folder / picture.file
        top = _top(page, picture.view)
        high = min(_MAX_HEIGHT[picture.width], _height(page) - top)
        page.screenshot(
            path=path,
            full_page=True,
            clip={"x": 0, "y": top, "width": picture.width, "height": high},
            animations="disabled",
        )
        return path
    finally:
        context.close()


def _wait_until_rendered(page: Page, view: str) -> None:
    expect(page.locator("main h1")).to_be_visible(timeout=_PATIENCE_MS)
    if view.startswith("run-") or view == "run":
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
