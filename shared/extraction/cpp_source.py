"""Static analysis of untrusted C++ source by its lines. Nothing is compiled."""

import html
import re
from collections.abc import Sequence

from shared.extraction.languages import language_of
from shared.extraction.python_source import visible

_CPP = language_of("cpp")
_MAIN = re.compile(
    r"^[ \t]*(?:(?:signed|int|auto|int32_t|void)[ \t]+main[ \t]*\(|main[ \t]*\([^;\n]*$)",
    re.MULTILINE,
)
_EMPTY_MAIN = re.compile(r"main[ \t]*\([^)\n]{0,80}\)\s{0,20}\{(?:\s|//[^\n]*\n|return 0;){0,60}\}")
_PROGRAM = re.compile(r"^[ \t]*(?:#[ \t]*include\b|int[ \t]+main[ \t]*\()", re.MULTILINE)
_BEGIN = re.compile(
    r"^[ \t]*(?:#[ \t]*(?:include|define|pragma)\b|using[ \t]+\w|typedef\b|template[ \t]*<"
    r"|(?:struct|class)[ \t]+\w+[^.\n]*$|(?:int|signed|void)[ \t]+\w+[ \t]*\(|//|/\*)",
    re.MULTILINE,
)
_INPUT = re.compile(r"\bcin\b|\bscanf|\bgetline\b|\bgetchar|\bstdin\b|\bfread\b|\bread[ \t]*\(")
_OWN_HEADER = re.compile(r"^[ \t]*#[ \t]*include[ \t]*\"[^\"\n]*\"[^\n]*$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_TYPE = (
    r"(?:(?!(?:using|return|else|if|for|while|namespace|case|goto|new|delete)\b)"
    r"[\w:]+(?:<[\w:,<>* ]*>)?[ \t*&]+)+"
)
# What a line without indentation defines: a macro, a type, a function or a variable.
_NAME = re.compile(
    rf"^(?:#define[ \t]+|{_TYPE})(?!main\b)(\w+)[ \t]*(?=[({{;=\[]|:|$|\d)", re.MULTILINE
)
_LOCAL = re.compile(rf"^[ \t]+{_TYPE}(\w+)[ \t]*[;=,({{\[]", re.MULTILINE)
# A step of a program, which cannot stand outside a function.
_STATEMENT = re.compile(
    r"^(?:(?:std::)?(?:cin|cout|scanf|printf|sort)\b|(?:for|while|if|return)\b"
    r"|\w+(?:\[[^\]\n]*\])?[ \t]*[-+*/]?=)",
    re.MULTILINE,
)


def readable_cpp(code: str) -> str:
    """A block without invisible characters, and without HTML's entities if a header has them."""
    return visible(html.unescape(code) if "#include &lt;" in code else code)


def looks_like_cpp(text: str) -> bool:
    """Whether a line of the text includes a header or begins ``main``."""
    return _PROGRAM.search(text) is not None


def has_main(code: str) -> bool:
    return _MAIN.search(code) is not None and _EMPTY_MAIN.search(code) is None


def reads_input(code: str) -> bool:
    return _INPUT.search(_CPP.literal.sub(" ", code)) is not None


def _used(code: str) -> set[str]:
    """Words of the program besides those that it defines."""
    words = set(_WORD.findall(_CPP.literal.sub(" ", code)))
    return words - set(_NAME.findall(code)) - set(_LOCAL.findall(code))


def uses_program(codes: Sequence[str], place: int) -> bool:
    """Whether a block calls what only an earlier whole program defines, as an example does."""
    used = _used(codes[place])
    return any(
        used & set(_NAME.findall(other))
        for other in codes[max(0, place - 20) : place]
        if has_main(other)
    )


def combine_cpp(codes: Sequence[str], chosen: int) -> str | None:
    """The chosen program behind the other blocks whose names it uses; None if it uses none."""
    answer = codes[chosen]
    used, defined = _used(answer), set(_NAME.findall(answer))
    parts: list[str] = []
    for place, code in enumerate(codes):
        names = set(_NAME.findall(code))
        wanted = place != chosen and names & used and not names & defined
        if wanted and not _MAIN.search(code) and _stands_alone(code):
            parts.append(code)
            defined |= names
    if not parts:
        return None
    return "\n\n".join(_OWN_HEADER.sub("", part).strip("\n") for part in (*parts, answer))


def _stands_alone(code: str) -> bool:
    whole = code.rstrip().endswith((";", "}")) and code.count("{") == code.count("}")
    return whole and not _STATEMENT.search(code)


def bare_cpp(text: str) -> str | None:
    """The program in a text without fences: from its first line to its last, without prose."""
    if not looks_like_cpp(text):
        return None
    first = _BEGIN.search(text)
    lines = text[first.start() if first else 0 :].split("\n")
    while lines and not lines[-1].rstrip().endswith(("}", ";", "};", "#endif", "*/", "{", ",")):
        lines.pop()
    return "\n".join(lines) or None
