"""Reward functions of TRL, slime, AReaL and verifiers. Settings come from the environment.

All of them raise RefusedError and NotJudgedError, as :meth:`Client.score`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from plumbline_reward.client import Client
from plumbline_reward.errors import RefusedError
from plumbline_reward.rows import (
    Completion,
    completion_text,
    is_missing,
    judged_item,
    without_special_tokens,
)

RewardFunction = Callable[..., list[float | None]]

_COLUMNS = ("ground_truth", "reward_model")
_TRUTHS = ("ground_truth", "reward_model", "label", "answer")


def make_reward_func(
    *, column: str | None = None, name: str = "plumbline", **options: Any
) -> RewardFunction:
    """Make a reward function for TRL, which logs it as ``rewards/<name>/mean``.

    References or inline tests are in ``column``; by default in ``ground_truth`` or verl's
    ``reward_model``, whichever the data set has. ``options`` are those of :class:`Client`, with its
    errors. With ``on_unjudged="none"`` a completion that was not judged gets None, which TRL leaves
    out; otherwise the function raises.
    """
    Client(**options)
    function = partial(_reward, options, column)  # unlike a closure it can be pickled
    vars(function).update(__name__=name, __qualname__=name)  # TRL reads the name
    return function


def reward_func(
    prompts: Sequence[object], completions: Sequence[Completion], **columns: Any
) -> list[float | None]:
    """Score completions for TRL, with settings from the environment."""
    return _reward({}, None, prompts, completions, **columns)


def _reward(
    options: Mapping[str, Any],
    column: str | None,
    prompts: Sequence[object],
    completions: Sequence[Completion],
    **columns: Any,
) -> list[float | None]:
    names = (column,) if column else _COLUMNS
    name = next((name for name in names if columns.get(name) is not None), None)
    if name is None:
        raise RefusedError(
            f"the data set has no column {' or '.join(names)}; its columns are {sorted(columns)}"
        )
    truths = columns[name]
    sources = columns.get("data_source")
    if sources is None:
        sources = [None] * len(completions)
    if not len(completions) == len(truths) == len(sources):
        raise RefusedError(f"{len(completions)} completions, but {len(truths)} rows of {name}")
    verdicts = Client(**options).score(
        judged_item(truth, completion_text(completion), source)
        for completion, truth, source in zip(completions, truths, sources, strict=True)
    )
    log_metric = columns.get("log_metric")  # of TRL 0.29 and later
    judged = [verdict for verdict in verdicts if verdict is not None]
    if callable(log_metric) and verdicts:
        log_metric("plumbline/unjudged", 1 - len(judged) / len(verdicts))
        if judged:
            log_metric("plumbline/accepted", sum(v.accepted for v in judged) / len(judged))
    return [None if verdict is None else verdict.score for verdict in verdicts]


async def slime_reward(args: object, sample: Any, **_: object) -> float | list[float]:
    """Score a sample, or a list of samples, for slime.

    ``--custom-rm-path plumbline_reward.trainers.slime_reward``, with references in the
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
    name = next((name for name in _TRUTHS if not is_missing(row.get(name))), None)
    if name is None:
        raise RefusedError(
            f"no ground truth: the row needs one of {', '.join(_TRUTHS)}; it has {sorted(row)}"
        )
    return row[name]


async def _scores(items: Sequence[Mapping[str, object]]) -> list[float]:
    verdicts = await Client(on_unjudged="raise").score_async(items)
    return [verdict.score for verdict in verdicts if verdict is not None]
