"""The screenshots in ``docs/pages`` are the ones that ``python -m tools.screenshots`` takes."""

from tools.screenshots import PAGES, PICTURES, ROOT, WIDTH

_PNG = b"\x89PNG\r\n\x1a\n"


def test_every_picture_is_there_and_no_other_and_a_document_shows_it() -> None:
    assert {path.name for path in PAGES.iterdir()} == set(PICTURES)
    documents = [*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")]
    texts = "".join(path.read_text("utf-8") for path in documents)
    assert [name for name in PICTURES if f"pages/{name}" not in texts] == []


def test_they_are_as_wide_as_their_names_say_and_small() -> None:
    for name in PICTURES:
        head = (PAGES / name).read_bytes()[:24]
        assert head[:8] == _PNG
        assert int.from_bytes(head[16:20], "big") == WIDTH
    assert sum(path.stat().st_size for path in PAGES.iterdir()) < 1_000_000
