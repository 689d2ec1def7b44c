"""Tokens of programs, names that code defines, and word n-grams, for comparing problems.

Tokens do not depend on layout, comments, annotations or formatters.
"""

import ast
import builtins
import hashlib
import keyword
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

KEYWORDS = frozenset(keyword.kwlist)
BUILTINS = frozenset(dir(builtins)) | KEYWORDS

# Plain code

_BRACKETS = r"\[[^\[\]]*\]"
for _ in range(2):
    _BRACKETS = rf"\[(?:[^\[\]]|{_BRACKETS})*\]"
_ANNOTATION = re.compile(rf":\s*[\w.\"']+(?:{_BRACKETS})?(?:\s*\|\s*[\w.]+(?:{_BRACKETS})?)*")
_HEADER = re.compile(
    r"(def\s+\w+\s*\()([^()]{0,2000}(?:\([^()]{0,200}\)[^()]{0,2000}){0,9})\)\s*(?:->[^:\n]{1,120})?:"
)
# A text may begin or end within a docstring; then the quotes enclose the program after it.
_DOCSTRING = re.compile(r"(:\s*\n[ \t]*)[rRuU]?(\"\"\"|''')(?:(?!def )[\s\S])*?\2")
_BLOCK_COMMENT = re.compile(r"/\*[\s\S]{0,10000}?\*/|//[^\n]*")
# Patterns begin with a literal character, by which `re` finds their candidates fast.
_PROMPT = re.compile(r"\n[ \t]*(?:>+[ \t]?|\.\.\.(?:[ \t]|(?=\n)))+")
_COMMENT = re.compile(r"#[^\n]*")
_IMPORT = re.compile(r"\n[ \t]*(?:from[ \t]+[\w.]+[ \t]+)?import[ \t][^\n]*")
_ELSE_IF = re.compile(r"else\s*:\s*if\b")
_OPEN_SLICE = re.compile(r"::\s*\]")


def plain_code(text: str) -> str:
    """Remove what may differ between two editions of a program.

    These are prompts, comments, docstrings, imports and annotations.
    """
    text = f"\n{text}"
    if "#include" in text:
        text = _BLOCK_COMMENT.sub("", text)
    if '"""' in text or "'''" in text:
        text = _DOCSTRING.sub(r"\1", text)
    if "#" in text:
        text = _COMMENT.sub("", text)
    if ">" in text:
        text = _PROMPT.sub("\n", text)
    if "import" in text:
        text = _IMPORT.sub("", text)
    if "def " in text:
        text = _HEADER.sub(lambda match: f"{match[1]}{_ANNOTATION.sub('', match[2])}):", text)
    return _OPEN_SLICE.sub(":]", _ELSE_IF.sub("elif", text))


# Tokens

# A word directly after a quotation mark is the begin of a string, whose prefix does not matter.
# ``self`` is dropped; parentheses, commas and semicolons are not matched at all.
_TOKEN = re.compile(
    r"(?:self|cls)\b(?:[ \t]*\.)?|[rRbBuUfF]{1,2}[\"']\w*"
    r"|\"[^\W\d]\w*+(?=[^\"\n]*+\")|'[^\W\d]\w*+(?=[^'\n]*+')|[^\W\d]\w*|\.[ \t]*[^\W\d]\w*"
    r"|\d[\w.]*|[\n\"'`]|[^\s\w(),;\\]"
)
_DROPPED = re.compile(r"(?:self|cls)\b.*")
_QUOTE = re.compile("[\"']")
_ENDS = frozenset("\n\"'`")
_END = 2
_NAME = np.uint64(1)


@lru_cache(maxsize=1 << 18)
def _number(token: str) -> int:
    """A number per token: 0 if dropped, 2 at the end of a line or string, odd for a name."""
    if token[-1] in _ENDS:
        return _END
    if _DROPPED.fullmatch(token):
        return 0
    hashed = hashlib.blake2b(normalized(token).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(hashed.digest(), "little") & ~3 | (5 if is_name(token) else 4)


def is_name(token: str) -> bool:
    """Whether a token is an identifier that a program may choose."""
    return token.isidentifier() and token not in BUILTINS


def normalized(token: str) -> str:
    """One form of a literal: ``2.50`` is ``2.5``, all quotation marks are the same."""
    if token[0].isdigit() and "." in token:
        return token.rstrip("0").rstrip(".")
    if '"' in token or "'" in token:
        return f"'{re.split(_QUOTE, token)[-1]}"
    return token.replace(" ", "").replace("\t", "")


@dataclass(frozen=True)
class CodeTokens:
    """Tokens of plain code: a number for each, odd for names.

    ``ends`` marks the last tokens of lines and strings.
    """

    numbers: Hashes
    ends: npt.NDArray[np.bool_]
    words: tuple[str, ...]

    @cached_property
    def names(self) -> npt.NDArray[np.bool_]:
        return (self.numbers & _NAME).astype(np.bool_)

    @cached_property
    def nameless(self) -> Hashes:
        """The numbers, the same one for all names."""
        return np.where(self.names, _NAME, self.numbers)

    @cached_property
    def distances(self) -> Hashes:
        """Tokens since the previous occurrence of the same token; huge for the first one."""
        order = np.argsort(self.numbers, kind="stable")
        same = np.flatnonzero(self.numbers[order[1:]] == self.numbers[order[:-1]])
        distances = np.full(len(order), np.iinfo(np.uint64).max, np.uint64)
        distances[order[same + 1]] = order[same + 1] - order[same]
        return distances

    def pattern(self, start: int, length: int) -> bytes:
        """Parameterized pattern of a run of tokens (B. Baker, 1993), equal for renamed programs.

        A name counts as its distance from its previous occurrence in the run, or as new (0).
        """
        run = slice(start, start + length)
        distances = self.distances[run]
        within = np.where(distances <= np.arange(len(distances), dtype=np.uint64), distances, 0)
        return np.where(self.names[run], within, self.numbers[run]).tobytes()


def tokenize_code(code: str, *, words: bool = False) -> CodeTokens:
    """Split plain code of any language into tokens; ``words`` keeps their texts."""
    tokens: Sequence[str] = _TOKEN.findall(code)
    every = np.fromiter(map(_number, tokens), np.uint64, len(tokens))
    kept = np.flatnonzero(every > _END)
    following = np.append(every, np.uint64(_END))[kept + 1]
    texts = tuple(tokens[at] for at in kept.tolist()) if words else ()
    return CodeTokens(every[kept], following == _END, texts)


# Names that the code of a text defines

# Names cannot begin with a digit, so this is never a name.
PLACEHOLDER = "0name"

_FENCE = re.compile(r"^```[ \t]*+(?:python3?|py)?[ \t]*+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"\b(?:def|class|assert|lambda)\b|>>>|```")
_DEFINED = re.compile(r"\b(?:def|class)[ \t]+(\w+)")
# In MBPP only the tests name the function.
_TEST_LINE = re.compile(r"^[ \t]*(?:assert\b|>>>)(.*)$", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w.])([^\W\d]\w*)\(")
_IDENTIFIER = re.compile(r"(?<!\w)[^\W\d]\w*")
# In characters, far beyond any prompt; the parser needs many times the memory of its text.
_PARSED_LENGTH = 100_000


def without_names(text: str) -> str | None:
    """Replace the names that the text's own code defines by a placeholder, in prose as well.

    Builtins, attributes, keywords and literals are kept. None if no code defines a name.
    """
    names = own_names(text)
    if not names:
        return None

    def replaced(match: re.Match[str]) -> str:
        return PLACEHOLDER if match[0] in names else match[0]

    return _IDENTIFIER.sub(replaced, text)


def own_names(text: str) -> frozenset[str]:
    """Collect the names that code defines or binds, and the functions that tests call."""
    if not _CODE.search(text):
        return frozenset()
    names = {name for code in (text, *_FENCE.findall(text)) for name in bound_names(code)}
    names.update(_DEFINED.findall(text))
    for line in _TEST_LINE.findall(text):
        names.update(name for name in _CALLED.findall(line) if name not in BUILTINS)
    return frozenset(names)


def bound_names(code: str) -> frozenset[str]:
    """Collect the names that the code binds; none if it is not Python."""
    return frozenset(_bound(parse_python(code)))


def _bound(tree: ast.Module | None) -> Iterator[str]:
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def parse_python(code: str) -> ast.Module | None:
    """The syntax tree of a text; None if it is not Python, or too long."""
    if len(code) > _PARSED_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as "\d" in the code
            return ast.parse(textwrap.dedent(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# Word n-grams as 64-bit hashes

_ASCII_LOWER_WORDS = bytes(
    code if chr(code).isalnum() or code >= 0x80 else 0x20
    for code in (ord(chr(value).lower()) if value < 0x80 else value for value in range(256))
)
# Kana and CJK ideographs have no blanks between words.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_BETWEEN = re.compile(r"[\W_]+")
# Soft hyphens and characters without a width, which web pages have within words.
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")


def words(text: str) -> list[bytes]:
    """Split a text into words: runs of letters and digits, in lower case, as UTF-8.

    Punctuation, line ends, indentation and the ASCII underscore separate words, so layout and
    Markdown do not matter. In scripts without blanks each character is a word.
    """
    return fold(text).split()


def fold(text: str) -> bytes:
    """Normalize a text to lower-case UTF-8 words separated by blanks (case folding, NFKC)."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
        text = _BETWEEN.sub(" ", text)
        text = _UNSPACED.sub(lambda match: f" {' '.join(match[0])} ", text)
    return text.encode("utf-8", "surrogatepass").translate(_ASCII_LOWER_WORDS)


_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def word_hashes(words: Sequence[bytes]) -> Hashes:
    """Hash each word; the hashes are the same in every process."""
    return np.fromiter(map(_word_hash, words), dtype=np.uint64, count=len(words))


# Most words of a text are common, so the hit rate of the cache is high.
@lru_cache(maxsize=1 << 16)
def _word_hash(word: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")


def ngram_hashes(hashes: Hashes, size: int) -> Hashes:
    """Hash each run of ``size`` words, in order; empty if there are fewer words.

    The hash is a polynomial in the words' hashes.
    """
    count = max(0, len(hashes) - size + 1)
    result = np.zeros(count, np.uint64)
    for step in range(size):
        result *= _FACTOR
        result += hashes[step : step + count]
    return result
