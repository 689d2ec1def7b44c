"""Code view of a text: n-grams of tokens that do not depend on names, layout or annotations.

An n-gram of tokens is compared as a parameterized pattern (B. Baker, "A theory of parameterized
pattern matching", 1993): a name counts as its distance, in tokens, from its previous occurrence in
the n-gram, or as new. So consistent renaming changes nothing, nor does the text around the n-gram.
Keywords, builtins, attributes, numbers, operators and the first words of strings count as they are.
"""

import builtins
import html
import keyword
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.data.contamination.tokens import Positions, hash_words
from services.data.ngrams import Hashes

# Escapes and markup

_UNICODE_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPED = re.compile(r"\\+(?=[\"'\n])")
_ENTITY = re.compile(r"&(?:#[0-9]{1,6}|#[xX][0-9a-fA-F]{1,5}|[a-zA-Z]{2,8});")
_TAG = re.compile(
    r"</?(?:p|br|hr|li|ul|ol|dl|dd|dt|div|span|pre|code|b|i|u|em|strong|tt|sub|sup|blockquote|h[1-6]"
    r"|table|tr|td|th)(?:\s+[\w-]{1,30}=(?:\"[^\"<>]{0,200}\"|'[^'<>]{0,200}'))*\s*/?>"
)
_NESTED_ESCAPES = 3


def unescape(text: str) -> str:
    """Undo the escapes of JSON and HTML, also nested ones, and remove tags of formatting.

    Applied to both sides of a comparison, so a text that has such an escape of its own still equals
    itself.
    """
    if "\\" in text:
        lines = text.replace("\\n", "\n")
        if len(lines) < len(text):
            text = _ESCAPED.sub("", lines.replace("\\r", " ").replace("\\t", " "))
        if "\\u" in text:
            text = _UNICODE_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
    for _ in range(_NESTED_ESCAPES):
        if "&" not in text or not _ENTITY.search(text):
            break
        text = html.unescape(text)
    if "<" in text and ("</" in text or "<br" in text):
        text = _TAG.sub(" ", text)
    return text


# Source text

# Patterns begin with a literal character, by which `re` finds their candidates fast.
_TYPES = (
    "int|str|float|bool|list|dict|set|tuple|bytes|object|complex|frozenset|None|Any|List|Dict|Set|Tuple|"
    "Optional|Union|Iterable|Iterator|Sequence|Callable|Generator|Mapping|Deque|DefaultDict|Counter"
)
_TYPE = rf"(?:typing\.)?(?:{_TYPES})\b(?:\[[^\n=()]*?\])?"
_ANNOTATION = re.compile(rf":[ \t]*{_TYPE}(?:[ \t]*\|[ \t]*{_TYPE})*(?=\s*(?:[,)]|=[^=]))")
_RESULT = re.compile(r"->[^:\n]{1,120}(?=:)")
_DOCSTRING = re.compile(r":\s*\n[ \t]*[rRuU]?(\"\"\"|''')")
_COMMENT = re.compile(r"#[^\n]*")
_BLOCK_COMMENT = re.compile(r"/\*[\s\S]*?\*/")
_SLASH_COMMENT = re.compile(r"//[^\n]*")


def plain_code(text: str) -> str:
    """Remove from an unescaped text what may differ between two editions of a program.

    These are comments, docstrings and annotations.
    """
    if "#" in text:
        if "#include" in text:
            text = _SLASH_COMMENT.sub("", _BLOCK_COMMENT.sub("", text))
        text = _COMMENT.sub("", text)
    if '"""' in text or "'''" in text:
        text = _without_docstrings(text)
    if "->" in text:
        text = _RESULT.sub("", text)
    return _ANNOTATION.sub("", text)


def _without_docstrings(text: str) -> str:
    kept = []
    done = 0
    for opening in _DOCSTRING.finditer(text):
        start, end = opening.end(), text.find(opening[1], opening.end())
        # A text may begin or end within a docstring; then the quotes enclose what follows it.
        if opening.start() >= done and end >= 0 and text.find("def ", start, end) < 0:
            kept.append(text[done : opening.start() + 1])
            done = end + 3
    kept.append(text[done:])
    return "".join(kept)


# A text without any of these has no program worth searching.
_SIGNS = ("=", "return", "print", "def ")


def may_have_code(text: str) -> bool:
    return any(sign in text for sign in _SIGNS)


# Tokens

SEPARATOR = b"\n\0\n"
"""No pattern of a program has its token, so it keeps the texts of a batch apart."""

_WORD, _SIGN, _DIGIT, _QUOTE, _DOT, _PREFIX, _ANGLE, _LINE_END = (1 << bit for bit in range(8))


def _classes() -> bytes:
    classes = [0] * 0x80 + [_WORD] * 0x80
    for bit, characters in (
        (_SIGN, "+-*/%=<>!&|^~@[]{}:\0"),
        (_DIGIT, "0123456789"),
        (_QUOTE, "'\""),
        (_DOT, "."),
        (_PREFIX, "rRuUbBfF"),
        (_ANGLE, ">"),
        (_LINE_END, "\n"),
    ):
        for character in characters:
            classes[ord(character)] |= bit
    for code in range(0x80):
        if chr(code).isalnum() or chr(code) == "_":
            classes[code] |= _WORD
    return bytes(classes)


_CLASSES = _classes()

KEYWORDS = frozenset(keyword.kwlist)
BUILTINS = frozenset(dir(builtins))
_KNOWN_BITS = 20


def _known_slots() -> npt.NDArray[np.bool_]:
    words = sorted(word.encode() for word in KEYWORDS | BUILTINS)
    text = b" ".join(words)
    slots = np.zeros(1 << _KNOWN_BITS, np.bool_)
    slots[_slot(tokenize_words(text))] = True
    return slots


def tokenize_words(text: bytes) -> Hashes:
    padded = b" " + text + b" " * 8
    word = np.frombuffer(padded.translate(_CLASSES), np.uint8) & _WORD
    edges = np.flatnonzero(word[1:] != word[:-1]) + 1
    return hash_words(padded, edges[0::2], edges[1::2])


def _slot(hashes: Hashes) -> npt.NDArray[np.int64]:
    return (hashes * _MIX >> np.uint64(64 - _KNOWN_BITS)).view(np.int64)


_MIX = np.uint64(0x9E3779B97F4A7C15)
_KNOWN = _known_slots()
_SELF = tokenize_words(b"self cls")
_ZERO = tokenize_words(b"0")


@dataclass(frozen=True, slots=True)
class CodeTokens:
    """Tokens of plain code: start, end and hash of each, and whether it is a name."""

    starts: Positions
    ends: Positions
    hashes: Hashes
    names: npt.NDArray[np.bool_]


def tokenize_code(code: bytes) -> CodeTokens:
    """Split plain code in UTF-8 into tokens.

    Parentheses, commas and quotation marks are none, as formatters add and remove them. Nor are
    ``self``, the prefixes of strings, and ``>`` where it may be the prompt of an interpreter or a
    quotation mark of Markdown.
    """
    padded = b"\n" + code + b" " * 8
    classes = np.frombuffer(padded.translate(_CLASSES), np.uint8)
    word = (classes & _WORD).view(np.bool_)
    edge = word[1:] != word[:-1]
    begins = edge & word[1:]
    begins |= (classes[1:] & _SIGN) != 0
    starts = np.flatnonzero(begins) + 1
    words = word[starts]
    ends = starts + 1
    ends[words] = np.flatnonzero(edge & word[:-1]) + 1
    hashes = hash_words(padded, starts, ends)
    first, before, after = classes[starts], classes[starts - 1], classes[ends]
    own = (hashes == _SELF[0]) | (hashes == _SELF[1])
    dropped = own | ((hashes == _ZERO[0]) & ((before & _DOT) != 0))  # 1. is 1.0
    dropped |= (ends - starts == 1) & ((first & _PREFIX) != 0) & ((after & _QUOTE) != 0)
    dropped |= ((first & _ANGLE) != 0) & (((before & (_ANGLE | _LINE_END)) | (after & _ANGLE)) != 0)
    literal = (before & _DOT) != 0
    literal[1:] &= ~own[:-1]
    literal |= _in_strings(classes, starts)
    names = words & ((first & _DIGIT) == 0) & ~literal
    if dropped.any():
        kept = ~dropped
        starts, ends, hashes, names = starts[kept], ends[kept], hashes[kept], names[kept]
    names &= ~_KNOWN[_slot(hashes)]
    return CodeTokens(starts - 1, ends - 1, hashes, names)


def _in_strings(classes: npt.NDArray[np.uint8], starts: Positions) -> npt.NDArray[np.bool_]:
    """Mark the tokens that an odd number of quotation marks precedes in their line."""
    quotes = np.flatnonzero(classes & _QUOTE)
    if not len(quotes):
        return np.zeros(len(starts), np.bool_)
    lines = np.searchsorted(np.flatnonzero(classes & _LINE_END), quotes)
    numbers = np.arange(len(quotes))
    same = lines[1:] == lines[:-1]
    firsts = np.maximum.accumulate(np.where(np.append(False, same), 0, numbers))
    opening = np.flatnonzero(((numbers - firsts) % 2 == 0)[:-1] & same)
    begins = np.searchsorted(starts, quotes[opening])
    ends = np.searchsorted(starts, quotes[opening + 1])
    changes = np.bincount(begins, minlength=len(starts) + 1)
    changes -= np.bincount(ends, minlength=len(starts) + 1)
    return np.cumsum(changes[:-1]) > 0


# Patterns

PATTERN = 12
"""Tokens per n-gram of code."""
SHORTEST, LONGEST = 7, 40
"""Tokens of a program that is one n-gram as a whole."""

Keys = npt.NDArray[np.uint32]
_KEY_FACTOR = np.uint32(0x9E3779B1)
_NEW = np.uint32(0x85EBCA6B)
_NEVER = 255


def pattern_keys(tokens: CodeTokens) -> tuple[Keys, Keys]:
    """Hash the patterns of ``SHORTEST`` and ``PATTERN`` tokens at each position, for a prefilter.

    Half the width of the real hash, which doubles the speed. Both have an entry for every token;
    those that reach beyond the end are of blanks.
    """
    count = len(tokens.hashes)
    hashes = np.zeros(count + PATTERN, np.uint32)
    hashes[:count] = (tokens.hashes * _MIX >> np.uint64(32)).astype(np.uint32)
    names = np.zeros(count + PATTERN, np.bool_)
    names[:count] = tokens.names
    np.bitwise_not(hashes, out=hashes, where=names)  # `x` is not the `x` of `a.x`
    distances = np.full(count + PATTERN, _NEVER, np.uint8)
    for distance in range(PATTERN - 1, 0, -1):
        same = hashes[distance:] == hashes[:-distance]
        np.copyto(distances[distance:], distance, where=same)
    np.copyto(hashes, distances * _KEY_FACTOR, where=names)
    distances[~names] = 0
    keys = np.zeros(count, np.uint32)
    short = keys
    for at in range(PATTERN):
        known = distances[at : at + count] <= at
        keys = keys * _KEY_FACTOR + np.where(known, hashes[at : at + count], _NEW)
        if at == SHORTEST - 1:
            short = keys
    return short, keys


def pattern_hashes(tokens: CodeTokens, at: Positions, length: int) -> Hashes:
    """Hash the patterns of ``length`` tokens at these positions, all of them complete."""
    places = at[:, None] + np.arange(length)
    hashes = np.ascontiguousarray(tokens.hashes[places].T)
    names = np.ascontiguousarray(tokens.names[places].T)
    result = np.full(len(at), length, np.uint64)
    for end in range(length):
        # 0 is a new name.
        code = np.zeros(len(at), np.uint64)
        for begin in range(end):
            same = (hashes[begin] == hashes[end]) & names[begin]
            np.copyto(code, np.uint64(end - begin), where=same)
        code = np.where(names[end], code, hashes[end])
        result = (result ^ result >> np.uint64(29)) * _MIX + code * _CODE_FACTOR
    return result ^ result >> np.uint64(32)


_CODE_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)


# Information

_KEYWORD_BITS, _BUILTIN_BITS, _SIGN_BITS, _LITERAL_BITS = 2.0, 4.0, 2.0, 7.0
_DIGIT_BITS = 3.0


def information(tokens: Sequence[bytes], names: Sequence[bool]) -> float:
    """Estimate how specific a pattern is, in bits.

    The bits are rough logarithms of frequencies: a keyword or an operator is one of about 4, a
    builtin one of 16, a word of a string, an attribute or a number above 9 one of 128. A new name
    says next to nothing, and a known one which of those before it.
    """
    seen: set[bytes] = set()
    bits = 0.0
    for token, name in zip(tokens, names, strict=True):
        if name:
            bits += (math.log2(len(seen) + 1)) if token in seen else 0.5
            seen.add(token)
        else:
            bits += _token_bits(token)
    return bits


def _token_bits(token: bytes) -> float:
    text = token.decode("utf-8", "replace")
    if text == ":":
        return 0.5
    if len(text) == 1:
        return _DIGIT_BITS if text.isdigit() else _SIGN_BITS
    if text in KEYWORDS:
        return _KEYWORD_BITS
    return _BUILTIN_BITS if text in BUILTINS else _LITERAL_BITS
