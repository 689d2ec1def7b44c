"""Static analysis of untrusted C++ source by its lines. Nothing is compiled."""

import re
from collections.abc import Iterator, Sequence

from shared.extraction.repairs import repaired

_MAIN = re.compile(
    r"^[ \t]*(?:(?:signed|int|auto|int32_t|void)[ \t]+main[ \t]*\(|main[ \t]*\([^;\n]*$)",
    re.MULTILINE,
)
_PROGRAM = re.compile(r"^[ \t]*(?:#[ \t]*include\b|int[ \t]+main[ \t]*\()", re.MULTILINE)
_BEGIN = re.compile(
    r"^[ \t]*(?:#[ \t]*(?:include|define|pragma)\b|using[ \t]+\w|typedef\b|template[ \t]*<"
    r"|(?:struct|class)[ \t]+\w+[^.\n]*$|(?:int|signed|void)[ \t]+\w+[ \t]*\(|//|/\*)",
    re.MULTILINE,
)
_OWN_HEADER = re.compile(r"^[ \t]*#[ \t]*include[ \t]*\"[^\"\n]*\"[^\n]*$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_SHIFT = re.compile(r"<<|\s>>")
_STATEMENT = re.compile(
    r"^(?:(?:std::)?(?:cin|cout|scanf|printf|sort)\b|(?:for|while|if|return)\b"
    r"|\w+(?:\[[^\]\n]*\])?[ \t]*[-+*/]?=)",
    re.MULTILINE,
)
_HEAD = re.compile(r"[^;={(\[]*")
_STATEMENT_WORDS = frozenset(
    ("using", "include", "pragma", "define", "return", "if", "for", "while", "else", "namespace")
)
_EMPTY_MAIN = re.compile(
    r"main[ \t]*\([^)\n]{0,80}\)\s{0,20}\{(?:\s|//[^\n]*\n|return 0;){0,60}\}", re.MULTILINE
)


def looks_like_cpp(text: str) -> bool:
    """Whether a line of the text includes a header or begins ``main``."""
    return _PROGRAM.search(text) is not None


def has_main(code: str) -> bool:
    return _MAIN.search(code) is not None and _EMPTY_MAIN.search(code) is None


def read_cpp(code: str) -> str:
    """The code, repaired if it looks like C++ only then or has HTML's entities."""
    if "&lt;" in code or "&gt;" in code or "&amp;" in code or not looks_like_cpp(code):
        return repaired(code, lambda text: looks_like_cpp(text) and "&lt;" not in text) or code
    return repaired(code, looks_like_cpp) or code if not code.isascii() else code


def combine_cpp(codes: Sequence[str], chosen: int) -> str | None:
    """The chosen program behind the other blocks whose names it uses; None if it uses none."""
    answer = codes[chosen]
    used = set(_WORD.findall(answer)) - _declared(answer)
    defined = set(_names(answer))
    parts: list[str] = []
    for place, code in enumerate(codes):
        names = set(_names(code))
        wanted = bool(names & used) and not names & defined
        if place != chosen and wanted and not _MAIN.search(code) and _is_whole(code):
            parts.append(code)
            defined |= names
    if not parts:
        return None
    return "\n\n".join(_OWN_HEADER.sub("", part).strip("\n") for part in (*parts, answer))


def _declared(code: str) -> set[str]:
    """Names that lines of any indentation declare, variables of functions included."""
    heads = [head[0] for line in code.split("\n") if (head := _HEAD.match(line.strip()))]
    words = [_WORD.findall(head) for head in heads if not _SHIFT.search(head)]
    return {
        name
        for first, *names in filter(None, words)
        if first not in _STATEMENT_WORDS
        for name in names
    }


def _is_whole(code: str) -> bool:
    if _STATEMENT.search(code):  # a step of a program, which cannot stand outside a function
        return False
    return code.rstrip().endswith((";", "}")) and code.count("{") == code.count("}")


def bare_cpp(text: str) -> str | None:
    """The program in a text without fences: from its first line to its last, without prose."""
    if not looks_like_cpp(text):
        return None
    first = _BEGIN.search(text)
    lines = text[first.start() if first else 0 :].split("\n")
    while lines and not lines[-1].rstrip().endswith(("}", ";", "};", "#endif", "*/", "{", ",")):
        lines.pop()
    return "\n".join(lines) or None


def _names(code: str) -> Iterator[str]:
    """Names of functions, types and variables that lines without indentation define."""
    for line in code.split("\n"):
        if not line[:1].isalpha() and not line.startswith("#define "):
            continue
        head = _HEAD.match(line.removeprefix("#define "))
        words = _WORD.findall(head[0] if head else "")
        if line.startswith("#define ") and words:
            yield words[0]
        elif len(words) > 1 and words[0] not in _STATEMENT_WORDS and words[-1] != "main":
            yield words[-1]
