"""Checkers: compare a program's output with the expected one, in linear time."""

import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import partial

DEFAULT_TOLERANCE = 1e-6

# SandboxFusion's tolerances.
_LINES_TOLERANCE = 1e-5
_LINES_LEAST_SCALE = 1e-10

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class CheckerStyle(StrEnum):
    """Form of a checker that a problem brings along (special judge)."""

    FUNCTION = "function"
    """Python that defines ``check(input, output, expected)``."""
    SCRIPT = "script"
    """Python that reads the files named in ``sys.argv`` and exits with testlib's codes."""
    BINARY = "binary"
    """C++ with such a ``main``, usually with testlib."""


class CheckerFault(StrEnum):
    """Reason why a special judge cannot judge."""

    NOT_COMPILED = "does not compile"
    NO_COMPILER = "needs a C++ compiler, which the sandbox lacks"
    TIMED_OUT = "exceeds its time limit"
    CRASHED = "crashes"
    NO_RESULT = "ends without a result"
    FAILED = "reports a failure"
    REJECTS_EXPECTED = "rejects the expected output"


Checker = Callable[[str, str], bool]
"""Called with a program's output and the expected one."""


def get_checker(spec: str) -> Checker:
    """Find a checker by its name, for example ``tokens`` or ``float:1e-6``.

    Raises:
        ValueError: Unknown checker, or a tolerance that is not a finite number of at least 0.
    """
    if spec in _PLAIN:
        return _PLAIN[spec]
    name, _, tolerance = spec.partition(":")
    if name == "float" and _NUMBER.fullmatch(tolerance) and 0 <= float(tolerance) < math.inf:
        return partial(floats, tolerance=float(tolerance))
    names = ", ".join(_PLAIN)
    raise ValueError(
        f"unknown checker {spec!r}; valid are {names} and float:TOLERANCE "
        f"(float is float:{DEFAULT_TOLERANCE:g})"
    )


def exact(actual: str, expected: str) -> bool:
    r"""Equal except for trailing newlines.

    Source: verl 0.9.1, ``verl/utils/reward_score/sandbox_fusion/utils.py``: only trailing "\n" are
    removed from both sides.
    """
    return actual.rstrip("\n") == expected.rstrip("\n")


def lines(actual: str, expected: str) -> bool:
    r"""Equal line by line, ignoring case, outer blanks, and small differences of single numbers.

    Source: SandboxFusion's CommonOJ rule. Both texts are stripped and split at "\n", and must have
    the same number of lines. Two lines agree if they are equal when stripped and lower-cased, or if
    ``float`` parses both and ``|a - b| / max(|expected|, 1e-10) < 1e-5``.
    """
    return _agree(_same_line, actual.strip().split("\n"), expected.strip().split("\n"))


def tokens(actual: str, expected: str) -> bool:
    """Equal except for the amount and kind of white space."""
    return actual.split() == expected.split()


def floats(actual: str, expected: str, tolerance: float = DEFAULT_TOLERANCE) -> bool:
    """Equal token by token; two finite decimal numbers may differ by the tolerance.

    ``|a - b| <= tolerance * max(1, |expected|)``: absolute for small numbers, relative for large
    ones. "nan" and "inf" are compared as text.
    """
    return _agree(partial(_close, tolerance=tolerance), actual.split(), expected.split())


def decimals(actual: str, expected: str) -> bool:
    """Equal line by line except for outer blanks, or equal as exact decimal numbers in every token.

    Source: LiveCodeBench, ``lcb_runner/evaluation/testing_util.py``, ``grade_stdio``.
    """
    return _agree(_same_decimals, actual.strip().split("\n"), expected.strip().split("\n"))


def as_json(actual: str, expected: str) -> bool:
    """Equal as JSON values, by Python's ``==``; a text may also be printed without quotes."""
    try:
        value = json.loads(expected)
    except (ValueError, RecursionError):
        return exact(actual, expected)
    text = actual.rstrip("\n")
    if isinstance(value, str) and text == value:
        return True
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


_PLAIN: dict[str, Checker] = {
    "exact": exact,
    "lines": lines,
    "tokens": tokens,
    "float": floats,
    "decimals": decimals,
    "json": as_json,
}


def _agree(same: Checker, actual: Sequence[str], expected: Sequence[str]) -> bool:
    return len(actual) == len(expected) and all(map(same, actual, expected))


def _same_decimals(actual: str, expected: str) -> bool:
    same_text = actual.strip() == expected.strip()
    return same_text or _agree(_same_decimal, actual.split(), expected.split())


def _same_decimal(actual: str, expected: str) -> bool:
    if not _are_numbers(actual, expected):
        return False
    try:
        return Decimal(actual) == Decimal(expected)
    except InvalidOperation:  # an exponent of 20 digits
        return False


def _same_line(actual: str, expected: str) -> bool:
    actual, expected = actual.strip().lower(), expected.strip().lower()
    if actual == expected:
        return True
    try:
        ours, theirs = float(actual), float(expected)
    except ValueError:
        return False
    return abs(ours - theirs) / max(abs(theirs), _LINES_LEAST_SCALE) < _LINES_TOLERANCE


def _close(actual: str, expected: str, tolerance: float) -> bool:
    if actual == expected:
        return True
    if not _are_numbers(actual, expected):
        return False
    ours, theirs = float(actual), float(expected)
    finite = math.isfinite(ours) and math.isfinite(theirs)
    return finite and abs(ours - theirs) <= tolerance * max(1.0, abs(theirs))


def _are_numbers(*texts: str) -> bool:
    return all(map(_NUMBER.fullmatch, texts))
