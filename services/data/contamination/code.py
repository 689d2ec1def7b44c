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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.data.contamination.tokens import Positions, hash_words
from services.data.ngrams import Hashes

# Escapes and markup

_UNICODE_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPED = re.compile(r"\\+(?=[\"'\n])")
_STILL_ESCAPED = ('\\"', "\\'", "\\\n")
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
            text = lines
            if "\\" in text:
                text = text.replace("\\r", " ").replace("\\t", " ")
                text = text.replace('\\"', '"').replace("\\'", "'")
                if any(mark in text for mark in _STILL_ESCAPED):
                    text = _ESCAPED.sub("", text)
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
    if ">" in text:
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
_ZERO_BYTE = ord("0")
_ELSE, _IF, _ELIF = tokenize_words(b"else if elif")
_COLON, _BRACKET = hash_words(b":]" + b" " * 8, np.arange(2), np.arange(1, 3))


@dataclass(frozen=True, slots=True)
class CodeTokens:
    """Tokens of plain code: start, end and hash of each, and whether it may be a name.

    Such a word is a name unless it is quoted. ``quotes`` are the positions of quotation marks, and
    ``opening`` tells which of them begin a string of one line.
    """

    starts: Positions
    ends: Positions
    hashes: Hashes
    candidates: npt.NDArray[np.bool_]
    quotes: Positions
    opening: npt.NDArray[np.bool_]

    @property
    def names(self) -> npt.NDArray[np.bool_]:
        return self.names_at(np.arange(len(self.starts)))

    def names_at(self, at: Positions) -> npt.NDArray[np.bool_]:
        """Tell which of these tokens are names."""
        quoted = self.opening[np.searchsorted(self.quotes, self.starts[at])]
        names: npt.NDArray[np.bool_] = self.candidates[at] & ~quoted
        return names


def tokenize_code(code: bytes) -> CodeTokens:
    """Split plain code in UTF-8 into tokens.

    Parentheses, commas and quotation marks are none, as formatters add and remove them. Nor are
    ``self``, the prefixes of strings, and ``>`` where it may be the prompt of an interpreter or a
    quotation mark of Markdown.
    """
    padded = b"\n\n" + code + b"\0" + b" " * 8
    classes = np.frombuffer(padded.translate(_CLASSES), np.uint8)
    word = (classes & _WORD).view(np.bool_)
    bounds = word[1:] != word[:-1]
    bounds |= (classes[1:] & _SIGN) != 0
    edges = np.flatnonzero(bounds)
    edges += 1
    # The last token is the zero byte that was added. A word ends at the bound after its start.
    at = np.flatnonzero(classes[edges] & (_WORD | _SIGN))[:-1]
    starts = edges[at]
    first = classes[starts]
    words = (first & _WORD).view(np.bool_)
    at += 1
    ends = edges[at]
    ends -= starts
    ends -= 1
    ends *= words
    ends += starts
    ends += 1
    before, after = classes[starts - 1], classes[ends]
    _strip_zeros(padded, starts, ends, np.flatnonzero((first & _DIGIT) & (before & _DOT) >> 2))
    hashes = hash_words(padded, starts, ends)
    own = (hashes == _SELF[0]) | (hashes == _SELF[1])
    dotted = (before & _DOT) != 0
    dropped = own | ((hashes == _ZERO[0]) & dotted)  # 1. is 1.0
    dropped |= ((first & _PREFIX) != 0) & ((after & _QUOTE) != 0) & (ends - starts == 1)
    dropped |= ((first & _ANGLE) != 0) & (((before & (_ANGLE | _LINE_END)) | (after & _ANGLE)) != 0)
    dotted[1:] &= ~own[:-1]
    dotted |= (before == 0) & ((classes[starts - 2] & _DOT) != 0)  # `a. b` is `a.b`
    _join_formats(hashes, dropped)
    names = words & ((first & _DIGIT) == 0) & ~dotted & ~_KNOWN[_slot(hashes)]
    kept = np.flatnonzero(~dropped)
    return CodeTokens(
        starts[kept] - 2, ends[kept] - 2, hashes[kept], names[kept], *_quotes(classes)
    )


def _strip_zeros(text: bytes, starts: Positions, ends: Positions, decimals: Positions) -> None:
    """End decimals before their trailing zeros: 2.50 is 2.5."""
    characters = np.frombuffer(text, np.uint8)
    while len(decimals):
        zero = (characters[ends[decimals] - 1] == _ZERO_BYTE) & (
            ends[decimals] > starts[decimals] + 1
        )
        decimals = decimals[zero]
        ends[decimals] -= 1


def _join_formats(hashes: Hashes, dropped: npt.NDArray[np.bool_]) -> None:
    """Give one form to what has two: ``elif`` and ``else: if``, ``[a:]`` and ``[a::]``."""
    at = np.flatnonzero(hashes[:-2] == _ELSE)
    at = at[(hashes[at + 1] == _COLON) & (hashes[at + 2] == _IF)]
    hashes[at + 2] = _ELIF
    dropped[at] = dropped[at + 1] = True
    at = np.flatnonzero(hashes[:-2] == _COLON)
    at = at[(hashes[at + 1] == _COLON) & (hashes[at + 2] == _BRACKET)]
    dropped[at] = True


def _quotes(classes: npt.NDArray[np.uint8]) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Find the quotation marks, and those with an even number before them and one after them.

    Both counts are within the line. The second array is shifted: its entry is that of the mark
    before, since it is looked up by the number of marks before a token.
    """
    events = np.flatnonzero(classes & (_QUOTE | _LINE_END))
    at = np.flatnonzero(classes[events] & _QUOTE)
    numbers = np.arange(len(at))
    lines = at - numbers
    same = lines[1:] == lines[:-1]
    firsts = np.maximum.accumulate(np.where(np.append(False, same)[: len(at)], 0, numbers))
    opening = np.zeros(len(at) + 1, np.bool_)
    opening[1:-1] = same & ((numbers - firsts) % 2 == 0)[:-1]
    return events[at] - 2, opening


# Patterns

PATTERN = 12
"""Tokens per n-gram of code."""
SHORTEST, LONGEST = 7, 40
"""Tokens of a program that is one n-gram as a whole."""

Keys = npt.NDArray[np.uint32]
_ANY_NAME = np.uint32(0x85EBCA6B)


def word_keys(tokens: CodeTokens) -> Keys:
    """Compute a key for each token that is the same for all names, and for words in strings.

    Their n-grams are the prefilter of patterns: most positions of a corpus differ from all patterns
    even without the distances of the names, which cost most.
    """
    keys = (tokens.hashes * _MIX >> np.uint64(32)).astype(np.uint32)
    np.copyto(keys, _ANY_NAME, where=tokens.candidates)
    return keys


def pattern_hashes(tokens: CodeTokens, at: Positions, length: int) -> Hashes:
    """Hash the patterns of ``length`` tokens at these positions, all of them complete."""
    (_, hashes), *_ = pattern_hashes_of(tokens, at, [length])
    return hashes


def pattern_hashes_of(
    tokens: CodeTokens, at: Positions, lengths: Sequence[int]
) -> Iterator[tuple[Positions, Hashes]]:
    """Hash the patterns at these positions, for each of the ascending lengths.

    Yields the positions that have so many tokens, and their hashes.
    """
    names: list[npt.NDArray[np.bool_]] = []
    hashes: list[Hashes] = []
    result = np.zeros(len(at), np.uint64)
    for length in lengths:
        complete = at + length <= len(tokens.hashes)
        if not complete.all():
            at, result = at[complete], result[complete]
            names = [one[complete] for one in names]
            hashes = [one[complete] for one in hashes]
        for end in range(len(names), length):
            own, name = tokens.hashes[at + end], tokens.names_at(at + end)
            # 0 is a new name.
            code = np.zeros(len(at), np.uint64)
            for begin in range(end):
                same = (hashes[begin] == own) & names[begin]
                np.copyto(code, np.uint64(end - begin), where=same)
            names.append(name)
            hashes.append(own)
            np.copyto(code, own, where=~name)
            result = (result ^ result >> np.uint64(29)) * _MIX + code * _CODE_FACTOR
        yield at, result ^ result >> np.uint64(32)


_CODE_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)


# Information

_KEYWORD_BITS, _BUILTIN_BITS, _SIGN_BITS, _LITERAL_BITS = 2.0, 4.0, 2.0, 10.0
_DIGIT_BITS, _COMMON_BITS = 3.0, 7.0
# Each of them is more than one in 1024 of the method calls in 174 MB of installed packages.
_COMMON_METHODS = frozenset(
    word.decode()
    for word in b"""
    add append clear copy count decode encode endswith extend find format get index insert items
    join keys lower pop remove replace setdefault sort split startswith strip update upper values
    """.split()
)


def information(tokens: Sequence[bytes], names: Sequence[bool]) -> float:
    """Estimate how specific a pattern is, in bits.

    The bits are rough logarithms of frequencies: a keyword or an operator is one of about 4, a
    builtin one of 16, a common method or a number above 9 one of 128, another attribute or a word
    of a string one of 1024. A new name says next to nothing, and a known one which of those before
    it.
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
    if text in BUILTINS:
        return _BUILTIN_BITS
    return _COMMON_BITS if text[0].isdigit() or text in _COMMON_METHODS else _LITERAL_BITS
