"""What every view must be at every width and in both themes: whole, and readable."""

from pathlib import Path

from playwright.sync_api import Page

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


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
