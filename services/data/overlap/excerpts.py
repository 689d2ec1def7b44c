"""One line of each of two texts, where they are alike."""

import numpy as np
import numpy.typing as npt

from services.data.text.ngrams import Hashes, ngram_hashes, word_hashes
from services.data.text.words import words

_RUNS = (5, 3, 1)  # words
_LENGTH = 160  # characters
_LEAD = 2  # words before the run


def excerpts(a: str, b: str) -> tuple[str, str]:
    """Cut a line out of each text around the longest run of words that both have.

    They are the texts' beginnings where no word is the same.
    """
    pieces_a, pieces_b = a.split(), b.split()
    hashes_a, hashes_b = _hashes(pieces_a), _hashes(pieces_b)
    for size in _RUNS:
        at = _longest_run(ngram_hashes(hashes_a, size), ngram_hashes(hashes_b, size))
        if at is not None:
            return _cut(pieces_a, at[0]), _cut(pieces_b, at[1])
    return _cut(pieces_a, 0), _cut(pieces_b, 0)


def _hashes(pieces: list[str]) -> Hashes:
    return word_hashes([b" ".join(words(piece)) for piece in pieces])


def _longest_run(a: Hashes, b: Hashes) -> tuple[int, int] | None:
    """Find where the longest run of common n-grams begins in either text."""
    _, in_a, in_b = np.intersect1d(a, b, return_indices=True)
    if not len(in_a):
        return None
    order = np.argsort(in_a)
    in_a, in_b = in_a[order], in_b[order]
    goes_on = (np.diff(in_a) == 1) & (np.diff(in_b) == 1)
    starts: npt.NDArray[np.intp] = np.flatnonzero(np.r_[True, ~goes_on])
    longest = starts[np.argmax(np.diff(np.r_[starts, len(in_a)]))]
    return int(in_a[longest]), int(in_b[longest])


def _cut(pieces: list[str], at: int) -> str:
    # Where a word is longer than an excerpt, no more than that of it is wanted.
    begin = max(0, at - _LEAD)
    line = " ".join(piece[:_LENGTH] for piece in pieces[begin : begin + _LENGTH // 2])
    printable = line.encode("utf-8", "replace").decode("utf-8")
    return printable if len(printable) <= _LENGTH else printable[: _LENGTH - 1] + "…"
