"""Parts of a C++ program in several blocks of an answer, found by lines without compiling."""

import re
from collections.abc import Sequence

from shared.extraction.languages import language_of

_CPP = language_of("cpp")
_MAIN = re.compile(r"\bmain[ \t]*\(")
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
# A step of a program, which cannot stand outside a function.
_STATEMENT = re.compile(
    r"^(?:(?:std::)?(?:cin|cout|scanf|printf|sort)\b|(?:for|while|if|return)\b"
    r"|\w+(?:\[[^\]\n]*\])?[ \t]*[-+*/]?=)",
    re.MULTILINE,
)


def combine_cpp(codes: Sequence[str], chosen: int) -> str | None:
    """The chosen program behind the other blocks whose names it uses; None if it uses none."""
    answer = codes[chosen]
    defined = set(_NAME.findall(answer))
    used = set(_WORD.findall(_CPP.literal.sub(" ", answer))) - defined
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
