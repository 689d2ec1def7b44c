"""Reward functions of further trainers: slime, AReaL, verifiers. Settings: the environment.

All of them raise RefusedError and NotJudgedError, as :meth:`Client.score`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from plumbline_reward.client import Client
from plumbline_reward.errors import RefusedError
from plumbline_reward.rows import (
    Completion,
    completion_text,
    judged_item,
    without_special_tokens,
)

_TRUTHS = ("ground_truth", "reward_model", "label", "answer")


async def slime_reward(args: object, sample: Any, **_: object) -> float | list[float]:
    """Score a sample, or a list of samples, for slime.

    ``--custom-rm-path plumbline_reward.other_trainers.slime_reward``, with references in the
    column of ``--label-key``.
    """
    samples = sample if isinstance(sample, list) else [sample]
    scores = await _scores(
        [judged_item(s.label, without_special_tokens(s.response)) for s in samples]
    )
    return scores if isinstance(sample, list) else scores[0]


def areal_reward(
    prompt: object, completions: Completion, prompt_ids: object, completion_ids: object, **data: Any
) -> float:
    """Score a completion for AReaL.

    AReaL's ``AsyncRewardWrapper`` turns what takes longer than its own ``timeout_seconds`` (15)
    into 0: give it more than ``PLUMBLINE_REWARD_TIMEOUT``.
    """
    item = judged_item(_truth(data), completion_text(completions), data.get("data_source"))
    return Client().submit(item).result().score


async def verifiers_reward(
    completion: Completion,
    answer: object = "",
    info: Mapping[str, object] | None = None,
    **_: object,
) -> float:
    """Score a rollout for verifiers: ``vf.Rubric(funcs=[verifiers_reward])``.

    The reference is ``info["ground_truth"]`` or ``answer``.
    """
    row = {"answer": answer, **(info or {})}
    item = judged_item(_truth(row), completion_text(completion), row.get("data_source"))
    return (await _scores([item]))[0]


def _truth(row: Mapping[str, object]) -> object:
    name = next((name for name in _TRUTHS if row.get(name)), None)
    if name is None:
        raise RefusedError(f"the row has none of {', '.join(_TRUTHS)}; it has {sorted(row)}")
    return row[name]


async def _scores(items: Sequence[Mapping[str, object]]) -> list[float]:
    verdicts = await Client(on_unjudged="raise").score_async(items)
    return [verdict.score for verdict in verdicts if verdict is not None]
