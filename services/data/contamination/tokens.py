"""Words of a folded text and their hashes, as arrays: a Python object per word would cost most."""

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.data.ngrams import Hashes

Positions = npt.NDArray[np.intp]
_BLANK = 0x20
_FIRST, _LAST, _LENGTH, _LONG = (
    np.uint64(odd)
    for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
)
_LONGEST = 64
_LOWEST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Start, end and hash of each word of a folded text."""

    starts: Positions
    ends: Positions
    hashes: Hashes


def tokenize(folded: bytes) -> Tokens:
    """Find and hash the words of a text that ``fold`` normalized.

    Different words may collide, so a match must be confirmed by the words.
    """
    # A leading blank, and enough trailing ones to read 8 bytes at each word's start.
    padded = b" " + folded + b" " * 8
    in_word = np.frombuffer(padded, np.uint8) != _BLANK
    edges = np.flatnonzero(in_word[1:] != in_word[:-1])
    starts, ends = edges[0::2], edges[1::2]
    return Tokens(starts, ends, hash_words(padded, starts + 1, ends + 1))


def hash_words(text: bytes, starts: Positions, ends: Positions) -> Hashes:
    """Hash words of a text, which must have 8 more bytes after the last one's start.

    The hash covers a word's length and its first and last 8 bytes, the others by 8 bytes too, or
    above 64 bytes by a checksum of the whole word.
    """
    eight: Hashes = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))
    lengths = ends - starts
    numbers: Hashes = eight[starts] & _LOWEST_BYTES[np.minimum(lengths, 8)]
    numbers *= _FIRST
    numbers += lengths.astype(np.uint64) * _LENGTH
    longer = np.flatnonzero(lengths > 8)
    numbers[longer] += eight[ends[longer] - 8] * _LAST
    for at in range(8, _LONGEST - 8, 8):
        longer = longer[lengths[longer] > at + 8]
        if not len(longer):
            break
        numbers[longer] ^= numbers[longer] >> np.uint64(29)
        numbers[longer] += eight[starts[longer] + at] * _LONG
    longest = longer[lengths[longer] > _LONGEST]
    spans = zip(starts[longest].tolist(), ends[longest].tolist(), strict=True)
    sums = [zlib.crc32(text[start:end]) for start, end in spans]
    numbers[longest] += np.array(sums, dtype=np.uint64) * _LONG
    # Multiplication carries upwards only; this mixes high bits into low ones.
    numbers ^= numbers >> np.uint64(32)
    return numbers
