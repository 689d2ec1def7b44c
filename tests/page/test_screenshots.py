"""The screenshots in ``docs/pages`` are the ones that ``python -m tools.screenshots`` takes."""

from tools.screenshots.pictures import all_pictures
from tools.screenshots.stack import REPOSITORY

_PAGES = REPOSITORY / "docs" / "pages"
_PNG = b"\x89PNG\r\n\x1a\n"


def test_every_picture_is_there_and_no_other() -> None:
    assert {path.name for path in _PAGES.iterdir()} == {one.file for one in all_pictures()}


def test_they_are_as_wide_as_their_names_say_and_small() -> None:
    for picture in all_pictures():
        head = (_PAGES / picture.file).read_bytes()[:24]
        assert head[:8] == _PNG
        assert int.from_bytes(head[16:20], "big") == picture.width
    assert sum(path.stat().st_size for path in _PAGES.iterdir()) < 5_000_000
