"""Scores of rows that are not code, by verl's own function or by one of the user's."""

import importlib
import importlib.util
import inspect
import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from plumbline_reward.ground_truth import is_reference

Function = Callable[..., Any]
Fallback = str | Function
"""``verl``, ``package.module:function``, ``/path/to/file.py:function``, or a function."""

_VERL = "verl.utils.reward_score:default_compute_score"
# A field of every kind of tests.
_TESTS = {"inputs", "entry_point", "test_list", "program_tests", "sandbox_id"}


def is_code(ground_truth: object) -> bool:
    """Whether a ground truth is a reference to tests, or tests."""
    if isinstance(ground_truth, Mapping) and "ground_truth" in ground_truth:
        ground_truth = ground_truth["ground_truth"]  # verl's column reward_model
    if isinstance(ground_truth, str):
        if not ground_truth.lstrip().startswith("{"):
            return is_reference(ground_truth)
        try:
            ground_truth = json.loads(ground_truth)
        except (ValueError, RecursionError):
            return False
    return isinstance(ground_truth, Mapping) and bool(_TESTS & set(ground_truth))


def scorer(
    fallback: Fallback,
    data_source: str,
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, object] | None,
) -> Function:
    """Return the call of a fallback, whose arguments are those of verl's functions.

    Raises:
        ValueError: There is no such function.
    """
    function = _loaded(fallback) if isinstance(fallback, str) else fallback
    return partial(
        function,
        data_source=data_source,
        solution_str=solution_str,
        ground_truth=ground_truth,
        extra_info=extra_info,
    )


def is_async(call: Function) -> bool:
    """Whether a call from :func:`scorer` returns an awaitable."""
    return inspect.iscoroutinefunction(getattr(call, "func", call))


def numbers(result: object) -> dict[str, float]:
    """Convert what the function returns to the keys that a judged row has.

    A number is the score; of a mapping, ``score`` and ``acc`` count.

    Raises:
        ValueError: It is neither.
    """
    found: Mapping[str, Any] = result if isinstance(result, Mapping) else {"score": result}
    try:
        score = float(found["score"])
        acc = float(found.get("acc", score >= 1.0))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"fallback: it returned {result!r}, neither number nor score") from None
    zeros = dict.fromkeys(("cases_passed", "cases_total", "judge_seconds", "queue_seconds"), 0.0)
    rates = {"score": score, "acc": acc, "accepted": acc, "pass_ratio": score}
    return {**rates, "judged": 1.0, **zeros, "cached": 0.0}


@lru_cache
def _loaded(name: str) -> Function:
    place, separator, function = (_VERL if name == "verl" else name).rpartition(":")
    if not separator:
        raise ValueError(f"fallback: {name!r} is neither verl nor module:function")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location("plumbline_reward_fallback", place)
            if spec is None or spec.loader is None:
                raise ImportError(f"no module {place}")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        found = getattr(module, function)
    except (ImportError, OSError, AttributeError) as error:
        raise ValueError(f"fallback: {name!r} cannot be loaded ({error})") from None
    if not callable(found):
        raise ValueError(f"fallback: {name!r} is not a function")
    return found  # type: ignore[no-any-return]
