"""verl: ``reward.custom_reward_function.path=pkg://plumbline_reward``.

``compute_score`` is what the reward loop awaits, ``compute_score_sync`` what ``main_eval`` calls.
Settings of the client are further arguments, in verl's configuration under
``+reward.custom_reward_function.reward_kwargs``.
"""

import asyncio
from collections.abc import Mapping

from plumbline_reward.client import Client
from plumbline_reward.fallback import Fallback, is_async, is_code, numbers, scorer
from plumbline_reward.ground_truth import judged_item
from plumbline_reward.responses import Verdict
from plumbline_reward.settings import Rule

_VALIDATION_SPLITS = ("validation", "valid", "val", "eval", "test")


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, object] | None = None,
    *,
    url: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    score: Rule | None = None,
    purpose: str | None = None,
    fallback: Fallback | None = None,
    reward_router_address: object = None,
    reward_model_tokenizer: object = None,
) -> dict[str, float]:
    """Score a response; always the same keys, all of them numbers.

    ``score`` is the reward, ``acc`` (1.0 or 0.0) what validation counts. The purpose is
    ``validation`` if ``extra_info["split"]`` names such a split, unless it is given. If
    ``extra_info["last_turn"]`` is a text, it is judged in place of ``solution_str``, which has the
    tools' output in it. The last two arguments are verl's own and not used.

    With ``fallback`` a row whose ground truth is neither tests nor a reference to tests is scored
    by that function instead: ``verl`` (its ``default_compute_score``), ``module:function``,
    ``file.py:function``, or a function with the arguments of verl's.

    Raises:
        RefusedError: The service refuses the item; the text says why.
        NotJudgedError: It was not judged in time. verl then leaves the sample out.
        ValueError: A setting is invalid.
    """
    if fallback is not None and not is_code(ground_truth):
        other = scorer(fallback, data_source, solution_str, ground_truth, extra_info)
        return numbers(await other() if is_async(other) else await asyncio.to_thread(other))
    client = Client(
        url, token=token, timeout=timeout, score=score, purpose=purpose or _purpose(extra_info)
    )
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
    url: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    score: Rule | None = None,
    purpose: str | None = None,
    fallback: Fallback | None = None,
) -> float:
    """Score a response for ``verl.trainer.main_eval``; the purpose is ``validation``.

    ``fallback`` is as for :func:`compute_score`, but not asynchronous.

    Raises:
        RefusedError, NotJudgedError, ValueError: As :func:`compute_score`.
    """
    if fallback is not None and not is_code(ground_truth):
        return numbers(scorer(fallback, data_source, response, ground_truth, extra_info)())["score"]
    client = Client(url, token=token, timeout=timeout, score=score, purpose=purpose or "validation")
    future = client.submit(judged_item(ground_truth, response, data_source))
    try:
        return future.result().score
    finally:
        future.cancel()


def _purpose(extra_info: Mapping[str, object] | None) -> str:
    split = (extra_info or {}).get("split")
    validation = isinstance(split, str) and split.lower() in _VALIDATION_SPLITS
    return "validation" if validation else "train"


def _numbers(verdict: Verdict) -> dict[str, float]:
    return {
        "score": verdict.score,
        "acc": float(verdict.accepted),
        "accepted": float(verdict.accepted),
        "pass_ratio": verdict.pass_ratio,
        "judged": 1.0,
        "cases_passed": float(verdict.cases_passed),
        "cases_total": float(verdict.cases_total),
        "judge_seconds": verdict.judge_seconds,
        "queue_seconds": verdict.queue_seconds,
        "cached": float(verdict.cached),
    }
