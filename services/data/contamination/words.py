"""Word view of a text: its words in the order of the text, and how specific they are."""

import re
from collections.abc import Sequence

from services.data.ngrams import fold

# The numbers of a list are none of its words, because a copy may have other bullets.
_BULLET = re.compile(r"\n[ \t]*\d{1,2}[.)][ \t]")
_FIRST_BULLET = re.compile(r"1[.)][ \t]")

# Words that are in most statements and in most documentation.
_COMMON = frozenset(
    b"""
    a all an and any are as assert at be by can check class count create data def do
    each elements else every example false file find first following for from
    function get given has have if implement import in input int integer integers
    into is it its last len length list lists many may more most must name new no
    none not number numbers of on one only or order other output print program
    python range return returns same self set should so str string strings take than
    that the their then there these they this to true tuple two type use using value
    values was we whether which will with write you your
    """.split()
)
_COMMON_BITS, _SHORT_BITS, _WORD_BITS = 4.0, 2.0, 8.0


def fold_text(text: str) -> bytes:
    """Normalize an unescaped text to lower-case words separated by blanks."""
    if _FIRST_BULLET.search(text):
        text = _BULLET.sub("\n", f"\n{text}")
    return fold(text)


def word_information(words: Sequence[bytes]) -> float:
    """Estimate how specific a text is, in bits: few for common words, letters and short numbers."""
    return sum(map(_bits, words))


def _bits(word: bytes) -> float:
    if len(word) == 1 or (len(word) == 2 and word.isdigit()):
        return _SHORT_BITS
    return _COMMON_BITS if word in _COMMON else _WORD_BITS
