"""Normalization of texts, and estimates of how specific they are."""

import html
import re
from collections.abc import Sequence

from services.data.tokens import BUILTINS, KEYWORDS, fold, is_name

_UNICODE_ESCAPE = re.compile(r"(?<!\\)\\++u([0-9a-fA-F]{4})")
_ESCAPED = re.compile(r"(?<!\\)\\++(?=[\"'\n])")
_TAG = re.compile(
    r"</?(?:p|br|hr|li|ul|ol|dl|dd|dt|div|span|pre|code|b|i|u|em|strong|tt|sub|sup|blockquote|h[1-6]"
    r"|table|tr|td|th)(?:\s+[\w-]{1,30}=(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}'))*\s*/?>"
)
_NESTED_ESCAPES = 3
# Both sides of a comparison lose the numbers of a list, because a copy may have other bullets.
_BULLET = re.compile(r"\n[ \t]*\d{1,2}[.)][ \t]")


def unescape(text: str) -> str:
    """Undo the escapes of JSON and HTML, also nested ones, and remove tags of formatting.

    Backslashes that remain do not matter, because neither words nor tokens have any.
    """
    if "\\" in text:
        text = text.replace("\\n", "\n").replace("\\r", " ").replace("\\t", " ")
        text = _UNICODE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
        text = _ESCAPED.sub("", text)
    for _ in range(_NESTED_ESCAPES):
        if "&" not in text:
            break
        text = html.unescape(text)
    return _TAG.sub(" ", text) if "<" in text else text


def words_of(text: str) -> list[bytes]:
    """Split an unescaped text into lower-case words."""
    return fold(_BULLET.sub("\n", f"\n{text}")).split()


def may_have_code(text: str) -> bool:
    """Whether a text has any sign of a program that is worth searching."""
    return any(sign in text for sign in ("=", "return", "print", "def "))


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


def word_bits(words: Sequence[bytes]) -> float:
    """Estimate how specific words are, in bits: few for common words, letters and short numbers."""
    return sum(map(_word_bits, words))


def _word_bits(word: bytes) -> float:
    if len(word) == 1 or (len(word) == 2 and word.isdigit()):
        return 2.0
    return 4.0 if word in _COMMON else 8.0


_COMMON_METHODS = frozenset(
    b"""
    .add .append .clear .copy .count .decode .encode .endswith .extend .find .format .get .index
    .insert .items .join .keys .lower .pop .remove .replace .setdefault .sort .split .startswith
    .strip .update .upper .values
    """.decode().split()
)


def token_bits(tokens: Sequence[str]) -> float:
    """Estimate how specific tokens are, in bits: rough logarithms of their frequencies in code."""
    return sum(map(_token_bits, tokens))


def _token_bits(token: str) -> float:
    if is_name(token) or token == ":":
        return 0.5
    if token in KEYWORDS or not (token[-1].isalnum() or token[-1] == "_"):
        return 2.0
    if token.isdigit() and len(token) == 1:
        return 3.0
    if token in BUILTINS:
        return 4.0
    return 7.0 if token in _COMMON_METHODS or token[0].isdigit() else 10.0
