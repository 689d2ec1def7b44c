"""TRL: a reward function ``f(prompts, completions, **columns)`` for ``GRPOTrainer`` and others."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from plumbline_reward.client import Client
from plumbline_reward.errors import RefusedError
from plumbline_reward.ground_truth import judged_item
from plumbline_reward.responses import Verdict

Completion = str | Sequence[Mapping[str, object]]
RewardFunction = Callable[..., list[float | None]]
AsyncRewardFunction = Callable[..., Awaitable[list[float | None]]]

_COLUMNS = ("ground_truth", "reward_model")


def make_reward_func(
    *, column: str | None = None, name: str = "plumbline", **options: Any
) -> RewardFunction:
    """Make a reward function for TRL.

    Args:
        column: The column with references or inline tests; otherwise ``ground_truth`` or verl's
            ``reward_model``, whichever the data set has.
        name: What TRL logs it under, ``rewards/<name>/mean``.
        options: Settings of :class:`Client`. With ``on_unjudged="none"`` a completion that was not
            judged gets None, which TRL leaves out; otherwise the function raises.

    Raises:
        ValueError: A setting is invalid.
        TypeError: There is no such setting.
    """
    Client(**options)
    return _named(name, partial(_reward, options, column))


def make_async_reward_func(
    *, column: str | None = None, name: str = "plumbline", **options: Any
) -> AsyncRewardFunction:
    """Make a coroutine function for TRL, as :func:`make_reward_func`.

    TRL awaits the coroutines of all reward functions at the same time.
    """
    Client(**options)
    return _named(name, partial(_reward_async, options, column))


def reward_func(
    prompts: Sequence[object], completions: Sequence[Completion], **columns: Any
) -> list[float | None]:
    """Score completions for TRL, with settings from the environment.

    Raises:
        RefusedError: The service refuses an item, or no column has the ground truth.
        NotJudgedError: A completion was not judged in time, and ``PLUMBLINE_REWARD_ON_UNJUDGED``
            is not ``none``.
    """
    return _scores(Client().score(_items(completions, columns, None)), columns)


Named = TypeVar("Named", bound=Callable[..., Any])


def _named(name: str, function: Named) -> Named:
    # TRL reads the name of a reward function. A partial, unlike a closure, can be pickled.
    vars(function).update(__name__=name, __qualname__=name)
    return function


def _reward(
    options: Mapping[str, Any],
    column: str | None,
    prompts: Sequence[object],
    completions: Sequence[Completion],
    **columns: Any,
) -> list[float | None]:
    return _scores(Client(**options).score(_items(completions, columns, column)), columns)


async def _reward_async(
    options: Mapping[str, Any],
    column: str | None,
    prompts: Sequence[object],
    completions: Sequence[Completion],
    **columns: Any,
) -> list[float | None]:
    return _scores(
        await Client(**options).score_async(_items(completions, columns, column)), columns
    )


def completion_text(completion: Completion) -> str:
    """Return a completion's text; of a conversation the last message of the assistant.

    Raises:
        RefusedError: It has another shape.
    """
    if isinstance(completion, str):
        return completion
    for message in reversed(completion):
        if message.get("role", "assistant") == "assistant":
            return _content(message.get("content"))
    return ""  # the model said nothing


def _content(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) for part in content):
        return "".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    raise RefusedError(f"a message's content is a {type(content).__name__}, not a text")


def _items(
    completions: Sequence[Completion], columns: Mapping[str, Sequence[object]], column: str | None
) -> list[dict[str, object]]:
    names = (column,) if column else _COLUMNS
    found = next((name for name in names if columns.get(name) is not None), None)
    if found is None:
        raise RefusedError(
            f"the data set has no column {' or '.join(names)}; its columns are {sorted(columns)}"
        )
    truths = columns[found]
    sources = columns.get("data_source") or [None] * len(completions)
    if not len(completions) == len(truths) == len(sources):
        raise RefusedError(f"{len(completions)} completions, but {len(truths)} rows of {found}")
    return [
        judged_item(truth, completion_text(completion), source)
        for completion, truth, source in zip(completions, truths, sources, strict=True)
    ]


def _scores(
    verdicts: Sequence[Verdict | None], columns: Mapping[str, Sequence[object]]
) -> list[float | None]:
    log_metric = columns.get("log_metric")  # of TRL 0.29 and later
    judged = [verdict for verdict in verdicts if verdict is not None]
    if callable(log_metric) and verdicts:
        log_metric("plumbline/unjudged", 1 - len(judged) / len(verdicts))
        if judged:
            log_metric("plumbline/accepted", sum(v.accepted for v in judged) / len(judged))
    return [None if verdict is None else verdict.score for verdict in verdicts]
