"""The screenshots in ``docs/pages``."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "pages"


def test_every_picture_is_of_the_documents_and_small() -> None:
    documents = [*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")]
    texts = "".join(path.read_text("utf-8") for path in documents)
    pictures = [*PAGES.iterdir()]
    assert [path.name for path in pictures if f"pages/{path.name}" not in texts] == []
    for head in (path.read_bytes()[:24] for path in pictures):
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(head[16:20], "big") == 1280
    assert sum(path.stat().st_size for path in pictures) < 1_000_000
