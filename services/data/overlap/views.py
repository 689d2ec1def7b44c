"""Normalized views of prompts and code, insensitive to renaming, layout and headings."""

import re
from dataclasses import dataclass

from services.data.names import without_names
from services.data.ngrams import Hashes, word_hashes, words
from shared.datasets import canonicalize

_SHORT_LINE = 20  # characters
_LONGEST_HEADING = 60  # characters
_HEADING_WORDS = 3
_SHORT_WORD = 2  # bytes
_COLONS = (":", "\uff1a")
# Headings begin with a capital or a caseless letter and do not end with punctuation.
_NO_HEADING = re.compile(r"[\d()\[\]{}'\"=]|^[^\w#*]|^[a-z]|[.,;!?]$")


@dataclass(frozen=True, slots=True)
class Views:
    """The words of a prompt, as hashes; headings are removed from all views.

    ``prose`` omits numbers and words of one or two letters, so changed variables, limits or samples
    do not matter. ``named`` and ``named_prose`` are words and prose with a placeholder for each
    name that the prompt's own code defines; both are empty if the prompt has no code.
    """

    words: Hashes
    prose: Hashes
    named: Hashes
    named_prose: Hashes


def views_of(prompt: str) -> Views:
    """Compute all views of a prompt."""
    text = canonicalize(prompt)
    nameless = without_names(text)
    body = _without_headings(text)
    # A text without letters and digits is compared by its other characters.
    all_words = words(body) or words(text) or text.encode("utf-8", "surrogatepass").split()
    named = "" if nameless is None else _without_headings(nameless)
    return Views(
        words=word_hashes(all_words),
        prose=word_hashes(_prose(body)),
        named=word_hashes(words(named)),
        named_prose=word_hashes(_prose(named)),
    )


def _prose(text: str) -> list[bytes]:
    return [word for word in words(text) if len(word) > _SHORT_WORD and not word.isdigit()]


def _without_headings(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not _is_heading(line.strip()))


def _is_heading(line: str) -> bool:
    """Detect lines such as "Input" and "For example:", which differ in a translated copy."""
    if _NO_HEADING.search(line):
        return False
    if line.endswith(_COLONS):
        return len(line) <= _LONGEST_HEADING
    return len(line) <= _SHORT_LINE and len(line.split()) <= _HEADING_WORDS
