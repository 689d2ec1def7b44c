"""verl: ``reward.custom_reward_function.path=pkg://plumbline_reward``.

``compute_score`` is what the reward loop awaits, ``compute_score_sync`` what ``main_eval`` calls.
Settings of the client are further arguments, in verl's configuration under
``+reward.custom_reward_function.reward_kwargs``.
"""

import asyncio
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from plumbline_reward.client import Client
from plumbline_reward.responses import Verdict
from plumbline_reward.rows import is_code, judged_item

Fallback = str | Callable[..., Any]
"""``verl``, ``package.module:function``, or a function with the arguments of verl's functions."""

_VERL = "verl.utils.reward_score:default_compute_score"
_NUMBERS = (
    *("score", "accepted", "pass_ratio", "cases_passed", "cases_total"),
    *("judge_seconds", "queue_seconds", "cached"),
)
_VALIDATION_SPLITS = ("validation", "valid", "val", "eval", "test")


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, object] | None = None,
    *,
    purpose: str | None = None,
    fallback: Fallback | None = None,
    reward_router_address: object = None,
    reward_model_tokenizer: object = None,
    **settings: Any,
) -> dict[str, float]:
    """Score a response; always the same keys, all of them numbers.

    ``score`` is the reward, ``acc`` (1.0 or 0.0) what validation counts. The purpose is
    ``validation`` if ``extra_info["split"]`` names such a split, unless it is given. If
    ``extra_info["last_turn"]`` is a text, it is judged in place of ``solution_str``, which has the
    tools' output in it. ``reward_router_address`` and ``reward_model_tokenizer`` are verl's own and
    not used; ``settings`` are further ones of :class:`Client`.

    With ``fallback`` a row whose ground truth is neither tests nor a reference to tests is scored
    by that function instead: ``verl`` (its ``default_compute_score``), ``module:function``, or a
    function with the arguments of verl's.

    Raises:
        RefusedError: The service refuses the item; the text says why.
        NotJudgedError: It was not judged in time. verl then leaves the sample out.
    """
    if fallback is not None and not is_code(ground_truth):
        function = _loaded(fallback)
        row = {
            "data_source": data_source,
            "solution_str": solution_str,
            "ground_truth": ground_truth,
            "extra_info": extra_info,
        }
        if inspect.iscoroutinefunction(function):
            return _fallback_numbers(await function(**row))
        return _fallback_numbers(await asyncio.to_thread(function, **row))
    client = Client(purpose=purpose or _purpose(extra_info), **settings)
    last_turn = (extra_info or {}).get("last_turn")
    response = last_turn if isinstance(last_turn, str) else solution_str
    item = judged_item(ground_truth, response, data_source)
    return _numbers(await asyncio.wrap_future(client.submit(item)))


def compute_score_sync(
    data_source: str,
    response: str,
    ground_truth: object,
    extra_info: Mapping[str, object] | None = None,
    *,
    purpose: str = "validation",
    **options: Any,
) -> float:
    """Score a response for ``verl.trainer.main_eval``, as :func:`compute_score`; the score alone.

    It starts an event loop, so none may run in this thread.
    """
    scored = compute_score(
        data_source, response, ground_truth, extra_info, purpose=purpose, **options
    )
    return asyncio.run(scored)["score"]


def _purpose(extra_info: Mapping[str, object] | None) -> str:
    split = (extra_info or {}).get("split")
    validation = isinstance(split, str) and split.lower() in _VALIDATION_SPLITS
    return "validation" if validation else "train"


@lru_cache
def _loaded(fallback: Fallback) -> Callable[..., Any]:
    """The function of a fallback; raises ValueError if there is none."""
    if not isinstance(fallback, str):
        return fallback
    name = _VERL if fallback == "verl" else fallback
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"fallback: {name!r} cannot be loaded ({error})") from None
    if not callable(function):
        raise ValueError(f"fallback: {name!r} is not a function")
    return function  # type: ignore[no-any-return]


def _fallback_numbers(result: object) -> dict[str, float]:
    """Convert what a fallback returns: a number is the score; of a mapping score and acc count."""
    values: Mapping[str, Any] = result if isinstance(result, Mapping) else {"score": result}
    try:
        score = float(values["score"])
        acc = float(values.get("acc", score >= 1.0))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"fallback: it returned {result!r}, neither number nor score") from None
    zeros = dict.fromkeys(_NUMBERS, 0.0)
    rates = {"score": score, "accepted": acc, "pass_ratio": score}
    return {"acc": acc, "judged": 1.0, **zeros, **rates}


def _numbers(verdict: Verdict) -> dict[str, float]:
    numbers = {name: float(getattr(verdict, name)) for name in _NUMBERS}
    return {"acc": numbers["accepted"], "judged": 1.0, **numbers}
