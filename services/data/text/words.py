"""What counts as a word, wherever texts are compared."""

import re
import unicodedata
from functools import lru_cache

_ASCII_LOWER_WORDS = bytes(
    code if chr(code).isalnum() or code >= 0x80 else 0x20
    for code in (ord(chr(value).lower()) if value < 0x80 else value for value in range(256))
)
# Kana and CJK ideographs are written without blanks between words.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_BETWEEN = re.compile(r"[\W_]+")
# A stretch of ASCII, which is passed over at once, and a run beyond it. Words of another script
# with a blank or a comma between them are one run: there are far fewer runs than words.
_RUNS = re.compile(r"[\x00-\x7f]*((?:[^\x00-\x7f]+(?:[\n\t -/:-?]{1,4}[^\x00-\x7f]+)*)?)")
_CACHED_LENGTH = 16


def words(text: str) -> list[bytes]:
    """Split a text into words: runs of letters and digits, in lower case, as UTF-8.

    Punctuation, line ends, indentation and ASCII's underscore separate words, so neither the layout
    of a text nor its Markdown matters. A character of a script without blanks is a word of its own.
    """
    return fold(text).split()


def fold(text: str) -> bytes:
    """A text's words in lower case, as UTF-8, with blanks for all that is between them."""
    if not text.isascii():
        text = _fold_beyond_ascii(text)
    return text.encode("utf-8", "surrogatepass").translate(_ASCII_LOWER_WORDS)


def _fold_beyond_ascii(text: str) -> str:
    """Normalize the runs beyond ASCII, which most texts have few of; the rest has its table.

    An accent may combine with the ASCII letter before it, but nothing with an ASCII letter after
    it, so each run together with the character before it stands for itself.
    """
    parts = []
    done = 0
    for run in _RUNS.finditer(text):
        start = max(run.start(1) - 1, done)
        parts.append(text[done:start])
        done = run.end()
        part = text[start:done]
        parts.append(_fold_known(part) if len(part) <= _CACHED_LENGTH else _fold_run(part))
    return "".join(parts)


def _fold_run(text: str) -> str:
    text = _BETWEEN.sub(" ", unicodedata.normalize("NFKC", text).casefold())
    return _UNSPACED.sub(lambda found: f" {' '.join(found[0])} ", text)


_fold_known = lru_cache(maxsize=1 << 14)(_fold_run)
