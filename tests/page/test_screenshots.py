"""The screenshots in ``docs/pages`` are the ones that ``python -m tools.screenshots`` takes."""

from tools.screenshots.pictures import PICTURES, WIDTH
from tools.screenshots.stack import REPOSITORY

_PAGES = REPOSITORY / "docs" / "pages"
_PNG = b"\x89PNG\r\n\x1a\n"


def test_every_picture_is_there_and_no_other_and_a_document_shows_it() -> None:
    assert {path.name for path in _PAGES.iterdir()} == set(PICTURES)
    documents = [*REPOSITORY.glob("README*.md"), *(REPOSITORY / "docs").glob("*.md")]
    texts = "".join(path.read_text("utf-8") for path in documents)
    assert [name for name in PICTURES if f"pages/{name}" not in texts] == []


def test_they_are_as_wide_as_their_names_say_and_small() -> None:
    for name in PICTURES:
        head = (_PAGES / name).read_bytes()[:24]
        assert head[:8] == _PNG
        assert int.from_bytes(head[16:20], "big") == WIDTH
    assert sum(path.stat().st_size for path in _PAGES.iterdir()) < 1_000_000
