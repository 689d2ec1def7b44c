"""Special tokens at the end of a response: some trainers decode with them."""

import re

# A program does not end like this.
_TOKEN = re.compile(r"(?:<[|｜][^|｜<>\s]{1,40}[|｜]>|</s>|<eos>|<pad>|<end_of_turn>)\Z")
_LONGEST_TOKEN = 44


def without_special_tokens(text: str) -> str:
    """Remove special tokens, and blanks before them, in time in proportion to what it removes."""
    kept = len(text)
    while True:
        end = _before_blanks(text, kept)
        found = _TOKEN.search(text, max(0, end - _LONGEST_TOKEN), end)
        if found is None:
            return text[:kept]
        kept = _before_blanks(text, found.start())


def _before_blanks(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end
