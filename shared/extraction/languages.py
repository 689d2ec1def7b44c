"""Programming languages of SandboxFusion: the labels of their code blocks, strings and comments.

Those of the table of languages stand there.
"""

import re
from dataclasses import dataclass
from functools import cache

from shared.harness.languages import LANGUAGES

# SandboxFusion's names, in lower case, with the labels that models put on code blocks.
_LABELS = {
    name: frozenset(labels.split())
    for name, labels in {
        "python_gpu": "python py ipython pypy",
        "pytest": "python py ipython pypy pytest",
        "cuda": "cpp c++ cc cxx cplusplus cuda cu",
        "jest": "javascript js nodejs node mjs cjs typescript ts jest",
        "typescript": "typescript ts",
        "junit": "java junit",
        "bash": "bash sh shell",
        "csharp": "csharp c# cs",
        "d_ut": "d dlang d_ut",
        "julia": "julia jl",
        "kotlin_script": "kotlin kt kts kotlin_script",
        "lean": "lean lean4",
        "perl": "perl pl",
        "racket": "racket rkt",
        "ruby": "ruby rb",
        "sql": "sql sqlite mysql postgresql",
        "verilog": "verilog v systemverilog sv",
    }.items()
} | {language.name: frozenset(language.labels) for language in LANGUAGES.values()}
_TEXT_LABELS = (
    "text txt plaintext plain output input console terminal json yaml yml xml html css toml ini "
    "diff patch markdown md latex tex c objective-c scala lua php r swift dart haskell elixir math "
    "powershell bat dockerfile makefile mermaid zsh pycon python-repl csv pseudocode none "
    "shell-session sample example code solution answer tool_code tool_outputs"
)
_KNOWN_LABELS = frozenset(_TEXT_LABELS.split()).union(*_LABELS.values())
_EXTENSION = re.compile(r"[\w./\\-]*\.(\w{1,4})\Z")

_LINE_STRINGS = r"""|"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?"""
_PYTHON_LITERAL = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?" + _LINE_STRINGS + r"|#[^\n]*+",
    re.DOTALL,
)
_BRACES_LITERAL = re.compile(r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?" + _LINE_STRINGS, re.DOTALL)
_NEVER = re.compile(r"(?!)")
# The last line of a program in a language with braces.
_ENDS = ("}", ";", "*/", "#endif")


@dataclass(frozen=True)
class Language:
    """The labels of a language, in lower case and without a version, its strings and comments.

    ``main`` is the pattern of a whole program (None if it is not known), ``reads`` that of one that
    reads its input, ``begins`` that of its first line; the last line ends with one of ``ends``.
    """

    labels: frozenset[str]
    literal: re.Pattern[str]
    main: re.Pattern[str] | None = None
    reads: re.Pattern[str] = _NEVER
    begins: re.Pattern[str] = _NEVER
    ends: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        return "py" in self.labels

    @property
    def is_cpp(self) -> bool:
        return "cpp" in self.labels

    def owns(self, label: str) -> bool:
        """Whether a label in lower case, such as "python3" or "c++17", means this language."""
        return label in self.labels or _plain(label) in self.labels

    def bare(self, text: str) -> str | None:
        """The program in a text without fences: from its first line to its last, without prose."""
        first = self.begins.search(text)
        if first is None or self.main is None or not self.main.search(text):
            return None
        lines = text[first.start() :].split("\n")
        while lines and not lines[-1].rstrip().endswith(self.ends):
            lines.pop()
        return "\n".join(lines) or None


@cache
def language_of(name: str) -> Language:
    """Find a language by SandboxFusion's name; the label of an unknown one is its name."""
    key = name.lower()
    labels, entry = _LABELS.get(key, frozenset({key})), LANGUAGES.get(key)
    literal = _PYTHON_LITERAL if "py" in labels else _BRACES_LITERAL
    if entry is None or not entry.main:
        return Language(labels, literal)
    patterns = entry.main, entry.reads, rf"^[ \t]*(?:{entry.begins})"
    main, reads, begins = (re.compile(pattern, re.MULTILINE) for pattern in patterns)
    ends = (*_ENDS, ")") if key == "nodejs" else _ENDS
    return Language(labels, literal, main, reads, begins, ends)


def is_known_label(label: str) -> bool:
    """Whether a word in lower case behind a fence names a language or a kind of text."""
    return label in _KNOWN_LABELS or _plain(label) in _KNOWN_LABELS


def _plain(label: str) -> str:
    """Remove a version; a file name stands for its extension."""
    file = _EXTENSION.match(label)
    if file and file[1] in _KNOWN_LABELS:
        return file[1]
    return label.rstrip("0123456789.-_")


class Literals:
    """The strings and comments of a text, queried for positions in rising order."""

    def __init__(self, text: str, language: Language) -> None:
        self._text, self._pattern, self._start = text, language.literal, 0
        self._match = self._pattern.search(text)

    def around(self, position: int) -> re.Match[str] | None:
        """The comment or closed string that a position is in."""
        while self._match and self._match.end() <= position:
            self._match = self._pattern.search(self._text, self._match.end())
        match = self._match
        return match if match and match.start() < position and is_closed(match[0]) else None

    def restart(self, position: int) -> None:
        """Continue from a position as if nothing were before it."""
        if position < self._start or (self._match and self._match.start() < position):
            self._match = self._pattern.search(self._text, position)
        self._start = position


def is_closed(literal: str) -> bool:
    """Whether a match of ``Language.literal`` is a comment or has its closing mark."""
    if literal.startswith("/*"):
        return literal.endswith("*/")
    if literal[0] not in "\"'":
        return True
    mark = literal[:3] if literal[:3] in ('"""', "'''") else literal[0]
    return len(literal) >= 2 * len(mark) and literal.endswith(mark)


# Characters around a name that are searched.
_NEAR = 1000
_BODY = re.compile(r"[{;]")
_NO_TYPES = frozenset(("return", "else", "new", "await", "throw", "assert", "in", "case", "do"))


def defines_function(code: str, name: str) -> bool:
    """Whether a text in a language with braces defines a function of that name."""
    word = re.escape(name)
    if re.search(rf"\b(?:const|let|var)\s+{word}\s*=", code):
        return True
    for match in re.finditer(rf"\b{word}\s*(?:<[^<>(){{}};]*>)?\s*\(", code):
        before = code[max(0, match.start() - _NEAR) : match.start()].rpartition("\n")[2].rstrip()
        if not before or not (before[-1].isalnum() or before[-1] in "_>]&*"):
            continue  # a call: no type or keyword stands before the name
        body = _BODY.search(code, match.end(), match.end() + _NEAR)
        if before.split()[-1] not in _NO_TYPES and body is not None and body[0] == "{":
            return True
    return False
