"""A prompt seen in several ways, each blind to another disguise."""

import re
from dataclasses import dataclass

from services.data.overlap.names import without_names
from services.data.text.ngrams import Hashes, word_hashes
from services.data.text.words import words
from shared.canonical import canonicalize

_SHORT_LINE = 20  # characters
_LONGEST_HEADING = 60  # characters
_HEADING_WORDS = 3
_SHORT_WORD = 2  # bytes
_CODE_LINE = re.compile(
    r"^[ \t]*(?:def|class|assert|from|import|return|@|>>>|\.\.\.).*$", re.MULTILINE
)
_COLONS = (":", "\uff1a")
# Headings begin with a capital, or with a letter of a script that has none, and have no full stop.
_NO_HEADING = re.compile(r"[\d()\[\]{}'\"=]|^[^\w#*]|^[a-z]|[.,;!?]$")


@dataclass(frozen=True, slots=True)
class Views:
    """The words of a prompt, as numbers.

    All are without headings. ``prose`` has no numbers and no words of one or two letters, so it
    stays the same where a statement's variables, limits or samples are changed.
    ``beside_code`` is without lines of code, for copies that change names only there. ``named`` and
    ``named_prose`` are words and prose with a placeholder for each name of the prompt's own
    code. These three are empty where it has no code.
    """

    words: Hashes
    prose: Hashes
    beside_code: Hashes
    named: Hashes
    named_prose: Hashes


def views_of(prompt: str) -> Views:
    """Look at a prompt in every way."""
    text = canonicalize(prompt)
    nameless = without_names(text)
    body = _without_headings(text)
    # Text of nothing but signs is told apart by its signs.
    all_words = words(body) or words(text) or text.encode("utf-8", "surrogatepass").split()
    named = "" if nameless is None else _without_headings(nameless)
    beside_code = "" if nameless is None else _CODE_LINE.sub("", body)
    return Views(
        words=word_hashes(all_words),
        prose=word_hashes(_prose(body)),
        beside_code=word_hashes(words(beside_code)),
        named=word_hashes(words(named)),
        named_prose=word_hashes(_prose(named)),
    )


def _prose(text: str) -> list[bytes]:
    return [word for word in words(text) if len(word) > _SHORT_WORD and not word.isdigit()]


def _without_headings(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not _is_heading(line.strip()))


def _is_heading(line: str) -> bool:
    """Tell lines such as "Input" and "For example:", which a translated copy has in its own way."""
    if _NO_HEADING.search(line):
        return False
    if line.endswith(_COLONS):
        return len(line) <= _LONGEST_HEADING
    return len(line) <= _SHORT_LINE and len(line.split()) <= _HEADING_WORDS
