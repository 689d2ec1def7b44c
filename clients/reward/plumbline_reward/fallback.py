"""Scores of rows that are not code, by verl's own function or by one of the user's."""

import importlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Function = Callable[..., Any]
Fallback = str | Function
"""``verl``, ``package.module:function``, or a function with the arguments of verl's functions."""

_VERL = "verl.utils.reward_score:default_compute_score"


def loaded(fallback: Fallback) -> Function:
    """Return the function of a fallback.

    Raises:
        ValueError: There is no such function.
    """
    return _imported(fallback) if isinstance(fallback, str) else fallback


def numbers(result: object) -> dict[str, float]:
    """Convert what the function returns to the keys that a judged row has.

    A number is the score; of a mapping, ``score`` and ``acc`` count.

    Raises:
        ValueError: It is neither.
    """
    values: Mapping[str, Any] = result if isinstance(result, Mapping) else {"score": result}
    try:
        score = float(values["score"])
        acc = float(values.get("acc", score >= 1.0))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"fallback: it returned {result!r}, neither number nor score") from None
    zeros = dict.fromkeys(("cases_passed", "cases_total", "judge_seconds", "queue_seconds"), 0.0)
    rates = {"score": score, "acc": acc, "accepted": acc, "pass_ratio": score}
    return {**rates, "judged": 1.0, **zeros, "cached": 0.0}


@lru_cache
def _imported(name: str) -> Function:
    module, separator, function = (_VERL if name == "verl" else name).rpartition(":")
    if not separator:
        raise ValueError(f"fallback: {name!r} is neither verl nor module:function")
    try:
        imported = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"fallback: {name!r} cannot be loaded ({error})") from None
    if not callable(imported):
        raise ValueError(f"fallback: {name!r} is not a function")
    return imported  # type: ignore[no-any-return]
