"""Normalized views of prompts and code, insensitive to renaming, layout and headings."""

import ast
import builtins
import keyword
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from services.data.ngrams import Hashes, word_hashes, words
from shared.datasets import canonicalize

_SHORT_LINE = 20  # characters
_LONGEST_HEADING = 60  # characters
_HEADING_WORDS = 3
_SHORT_WORD = 2  # bytes
_CODE_LINE = re.compile(
    r"^[ \t]*(?:def|class|assert|from|import|return|@|>>>|\.\.\.).*$", re.MULTILINE
)
_COLONS = (":", "\uff1a")
# Headings begin with a capital or a caseless letter and do not end with punctuation.
_NO_HEADING = re.compile(r"[\d()\[\]{}'\"=]|^[^\w#*]|^[a-z]|[.,;!?]$")


@dataclass(frozen=True, slots=True)
class Views:
    """The words of a prompt, as hashes; headings are removed from all views.

    ``prose`` omits numbers and words of one or two letters, so changed variables, limits or samples
    do not matter. ``without_code`` omits lines of code, for copies that rename only there.
    ``named`` and ``named_prose`` are words and prose with a placeholder for each name that the
    prompt's own code defines. These three are empty if the prompt has no code.
    """

    words: Hashes
    prose: Hashes
    without_code: Hashes
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
    without_code = "" if nameless is None else _CODE_LINE.sub("", body)
    return Views(
        words=word_hashes(all_words),
        prose=word_hashes(_prose(body)),
        without_code=word_hashes(words(without_code)),
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


# Names cannot begin with a digit, so this is never a name.
PLACEHOLDER = "0name"
BUILTINS = frozenset(dir(builtins)) | frozenset(keyword.kwlist)

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

    def replaced(found: re.Match[str]) -> str:
        return PLACEHOLDER if found[0] in names else found[0]

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
    return frozenset(_bound(_parse(code)))


def _bound(tree: ast.Module | None) -> Iterator[str]:
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _parse(code: str) -> ast.Module | None:
    if len(code) > _PARSED_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as "\d" in the code
            return ast.parse(textwrap.dedent(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# Bounded string length keeps the search for the closing quote fast on any text.
_TOKEN = re.compile(
    r"""
    (?P<skip> \#[^\n]* | \"{3}.*?\"{3} | '{3}.*?'{3} )
    | (?P<string> "(?:\\.|[^"\\\n]){0,200}+" | '(?:\\.|[^'\\\n]){0,200}+' )
    | (?P<number> \d[\w.]* )
    | (?P<attribute> \.[^\W\d]\w* )
    | (?P<name> [^\W\d]\w* )
    | (?P<sign> [^\s\w] )
    """,
    re.VERBOSE | re.DOTALL,
)


def code_tokens(code: str, reach: int) -> list[bytes]:
    """Split code of any language into tokens that do not depend on the names chosen.

    A name becomes its distance, in tokens, from its previous occurrence (0 if that is ``reach``
    tokens away or more), so neither renaming nor inserting code in front matters. Python's keywords
    and builtins, attributes and literals are kept; comments and docstrings are skipped.
    """
    tokens: list[bytes] = []
    last: dict[str, int] = {}
    for found in _TOKEN.finditer(code):
        token = found[0]
        if found.lastgroup == "skip":
            continue
        if found.lastgroup == "name" and token not in BUILTINS:
            distance = len(tokens) - last.get(token, -reach)
            last[token] = len(tokens)
            token = f"@{distance if distance < reach else 0}"
        tokens.append(token.encode("utf-8", "surrogatepass"))
    return tokens
