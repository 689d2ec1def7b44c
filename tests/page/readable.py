"""What every view must be at every width and in both themes: whole, and readable."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


Looks = tuple[int, Literal["light", "dark"]]


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
