# ruff: noqa: ANN401 (results are any value)
"""Comparison of results in the tests of HumanEval+ and MBPP+, by EvalPlus' rules.

This file's text becomes a part of each problem's test: standard library only, and no import of this
project. Source of the rules: EvalPlus 0.3.1, ``evalplus/eval/__init__.py`` and
``_special_oracle.py``.
"""

from __future__ import annotations

import math

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from typing import Any

# Functions whose results may come in any order.
ANY_ORDER = (
    "Diff", "common_in_nested_lists", "extract_singly", "find_char_long", "find_dissimilar",
    "intersection_array", "larg_nnum", "similar_elements",
)  # fmt: skip
# Functions of which only counts whether they return something.
NOT_NONE = ("check_str", "text_match_three", "text_starta_endb")


def is_right(name: str, given: Any, actual: Any, expected: Any, tolerance: float) -> bool:
    """Whether a function's result is right, given its arguments and the reference's result."""
    try:
        return follows_rules(name, given, actual, expected, tolerance)
    except (TypeError, ValueError, OverflowError):
        return False  # a result of another kind


def follows_rules(name: str, given: Any, actual: Any, expected: Any, tolerance: float) -> bool:
    if name == "find_zero":
        value = sum(factor * math.pow(actual, power) for power, factor in enumerate(given[0]))
        return bool(abs(value) <= tolerance)
    if accepted_otherwise(name, given, actual, tolerance):
        return True
    if name in ANY_ORDER:
        return set(actual) == set(expected)
    if name in NOT_NONE:
        expected = expected if isinstance(expected, bool) else expected is not None
        return bool((actual if isinstance(actual, bool) else actual is not None) == expected)
    return bool(actual == expected) or is_close(actual, expected, tolerance)


def accepted_otherwise(name: str, given: Any, actual: Any, tolerance: float) -> bool:
    """Whether a result is right by a second reading of an ambiguous problem."""
    if name == "are_equivalent":
        return True
    if name == "sum_div":
        return bool(actual == 0)
    if name == "surface_Area":
        base, height = given
        slant = math.sqrt((base / 2) ** 2 + height**2)
        return bool(abs(actual - round(base**2 + 2 * base * slant)) <= tolerance)
    if name == "digit_distance_nums":
        first, second = map(str, given)
        width = max(len(first), len(second))
        pairs = zip(first.zfill(width), second.zfill(width))  # noqa: B905
        return bool(actual == sum(abs(int(x) - int(y)) for x, y in pairs))
    return False


def is_close(actual: Any, expected: Any, tolerance: float) -> bool:
    """Whether two results differ only by the tolerance, which floats always have."""
    if tolerance == 0 and is_floats(expected):
        tolerance = 1e-6
    return tolerance != 0 and type(actual) is type(expected) and same(actual, expected, tolerance)


def is_floats(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def same(actual: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(actual, (list, tuple))
            and len(actual) == len(expected)
            and all(same(x, y, tolerance) for x, y in zip(actual, expected))  # noqa: B905
        )
    if not (isinstance(actual, (int, float)) and isinstance(expected, (int, float))):
        return bool(actual == expected)
    if actual == expected:
        return True
    return abs(actual - expected) <= tolerance + 1e-7 * abs(expected) < math.inf
