"""Faults put into a program: pure functions of its text and a random generator."""

import io
import tokenize
from collections.abc import Container
from random import Random

_SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+",
    "+=": "-=", "-=": "+=", "min": "max", "max": "min", "and": "or", "or": "and", "True": "False",
    "False": "True", "0": "1", "1": "0",
}  # fmt: skip
_CLOSING = frozenset(")]}")


def swap_operator(code: str, random: Random) -> str:
    """Turn one operator or constant into another, so that the program parses and is wrong.

    One of the last third, which rarely is the reading of the input. A program without any becomes
    one that does nothing.
    """
    places = _tokens(code, _SWAPS)
    if not places:
        return "pass\n"
    place = random.choice(places[len(places) * 2 // 3 :])
    return _replace(code, place, _SWAPS[place.string])


def drop_bracket(code: str, random: Random) -> str:
    """Take out a closing bracket, so that the program does not parse."""
    places = _tokens(code, _CLOSING)
    return _replace(code, random.choice(places), "") if places else f"{code.rstrip()} (\n"


def _tokens(code: str, wanted: Container[str]) -> list[tokenize.TokenInfo]:
    """The tokens of a program that are ``wanted``; strings and comments are tokens of their own."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [token for token in tokens if token.string in wanted]


def _replace(code: str, token: tokenize.TokenInfo, text: str) -> str:
    lines = code.splitlines(keepends=True)
    row, start, end = token.start[0] - 1, token.start[1], token.end[1]
    lines[row] = lines[row][:start] + text + lines[row][end:]
    return "".join(lines)
