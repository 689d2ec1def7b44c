"""Seconds that rewards add to a training step, from the logs of :mod:`.timed` and of verl."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any


@dataclass(frozen=True, slots=True)
class Reward:
    """One completion; times are of one monotonic clock, in seconds."""

    step: int
    generated: float
    begin: float
    end: float
    score: float | None = None  # None: the reward raised
    cached: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    mean: float
    median: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What one reward cost, over all steps but those left out.

    Attributes:
        steps: Number of steps.
        completions: Mean number of rewards per step.
        critical: Seconds per step from the end of its last generation to the end of its last
            reward: the step waits for nothing else.
        busy: Seconds per step in which at least one completion waited for its reward.
        call: Seconds from the end of a generation to its reward.
        step: Seconds per step as verl logs them (``timing_s/step``).
        generation: Seconds of rollout per step with its rewards (``timing_s/gen``).
        critical_share: ``critical`` over ``step``.
        score: Mean score of the first and of the last five steps.
        cached: Share of completions whose verdict was remembered.
        failed: Rewards that raised.
    """

    steps: int
    completions: float
    critical: Spread
    busy: Spread
    call: Spread
    step: float | None
    generation: float | None
    critical_share: float | None
    score: tuple[float, float]
    cached: float
    failed: int


def read_rewards(path: Path) -> list[Reward]:
    return [Reward(**json.loads(line)) for line in path.read_text().splitlines()]


def read_metrics(path: Path) -> dict[int, dict[str, Any]]:
    """Metrics of each step from the file of verl's logger ``file``."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    metrics: dict[int, dict[str, Any]] = defaultdict(dict)
    for line in lines:
        metrics[line["step"]].update(line["data"])
    return dict(metrics)


def figures(
    rewards: Iterable[Reward], metrics: Mapping[int, Mapping[str, Any]], leave_out: int = 1
) -> Figures:
    """Summarize a run.

    Args:
        rewards: All rewards of the run.
        metrics: verl's metrics by step.
        leave_out: Steps at the beginning that do not count, because everything starts in them.

    Raises:
        ValueError: Fewer than two steps are left.
    """
    of_step: dict[int, list[Reward]] = defaultdict(list)
    for each in rewards:
        of_step[each.step].append(each)
    kept = [of_step[step] for step in sorted(of_step)[leave_out:]]
    if len(kept) < 2:
        raise ValueError(f"{len(of_step)} steps have rewards; at least {leave_out + 2} are needed")
    logged = [metrics.get(group[0].step, {}) for group in kept]
    critical = [critical_seconds(group) for group in kept]
    step = _mean_of(logged, "timing_s/step")
    every = [reward for group in kept for reward in group]
    means = [fmean(reward.score or 0.0 for reward in group) for group in kept]
    return Figures(
        steps=len(kept),
        completions=len(every) / len(kept),
        critical=_spread(critical),
        busy=_spread([covered((r.generated, r.end) for r in group) for group in kept]),
        call=_spread([reward.end - reward.generated for reward in every]),
        step=step,
        generation=_mean_of(logged, "timing_s/gen"),
        critical_share=fmean(critical) / step if step else None,
        score=(fmean(means[:5]), fmean(means[-5:])),
        cached=fmean(reward.cached for reward in every),
        failed=sum(reward.error is not None for reward in every),
    )


def critical_seconds(rewards: Sequence[Reward]) -> float:
    """Seconds from the last generation of a step to its last reward."""
    return max(r.end for r in rewards) - max(r.generated for r in rewards)


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def as_json(results: Mapping[str, Figures], facts: Mapping[str, Any]) -> str:
    table = {name: asdict(result) for name, result in results.items()}
    return json.dumps({"facts": dict(facts), "rewards": _rounded(table)}, indent=1)


def _spread(values: Sequence[float]) -> Spread:
    cuts = quantiles(values, n=20, method="inclusive")
    return Spread(fmean(values), cuts[9], cuts[18], max(values))


def _mean_of(logged: Sequence[Mapping[str, Any]], key: str) -> float | None:
    found = [float(metrics[key]) for metrics in logged if key in metrics]
    return fmean(found) if found else None


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 4)
        case dict():
            return {key: _rounded(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_rounded(inner) for inner in value]
    return value
