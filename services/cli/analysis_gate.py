"""A whole policy against two runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from services.cli.analysis_comparison import Comparison, DatasetComparison
from services.cli.analysis_policy import CostRule, DatasetRules, Policy
from services.cli.analysis_rules import (
    Finding,
    Outcome,
    at_most,
    max_increase,
    min_difference,
    premise,
)
from services.cli.analysis_runs import ComparedRun, Judged
from shared.errors import ConfigError
from shared.analysis.statistics import ratio
from shared.statuses import FinalStatus


def evaluate(policy: Policy, comparison: Comparison) -> list[Finding]:
    """Hold all rules against the two runs; runs that cannot be compared are held against none.

    Raises:
        ConfigError: The policy names a data set that neither run has.
    """
    _check_names(policy, comparison)
    return list(_incomparable(comparison)) or [
        finding
        for one in comparison.datasets
        for finding in _of_dataset(policy.rules(one.paired.dataset), comparison, one)
    ]


def decide(findings: Sequence[Finding]) -> Outcome:
    """All together: a premise that does not hold, then a rule that fails, then one undecided."""
    if any(one.premise and one.outcome is not Outcome.PASS for one in findings):
        return Outcome.UNDECIDED
    outcomes = {finding.outcome for finding in findings}
    for outcome in (Outcome.FAIL, Outcome.UNDECIDED):
        if outcome in outcomes:
            return outcome
    return Outcome.PASS


def _check_names(policy: Policy, comparison: Comparison) -> None:
    known = {*comparison.first.verdicts, *comparison.second.verdicts}
    if unknown := [name for name in policy.datasets if name not in known]:
        raise ConfigError(
            f"the policy has rules for {unknown[0]!r}, which neither run has; "
            f"there are {', '.join(sorted(known))}"
        )


def _incomparable(comparison: Comparison) -> Iterator[Finding]:
    for said in comparison.warnings:
        yield premise(
            "", "comparable", "same protocol", said, holds=False, why="differs beside the model"
        )
    for run, name in comparison.unshared:
        found = f"in {run} alone"
        yield premise(name, "comparable", "in both", found, holds=False, why="nothing to pair")
    for each in (comparison.first, comparison.second):
        if (state := each.run.run.get("state")) not in ("complete", "incomplete"):
            found = f"{each.label} is {state or 'of unknown state'}"
            yield premise("", "finished", "both", found, holds=False, why="numbers may change")


def _of_dataset(
    rules: DatasetRules, comparison: Comparison, one: DatasetComparison
) -> Iterator[Finding]:
    name = one.paired.dataset
    yield from _enough(rules, comparison, one)
    if rules.max_new_failures is not None:
        yield at_most(
            name, "new failures", len(one.paired.lost), rules.max_new_failures, of="A alone"
        )
    for metric, rule, found in (
        ("accepted_at_1", rules.accepted_at_1, one.accepted_at_1),
        ("pass_ratio_mean", rules.pass_ratio_mean, one.pass_ratio_mean),
    ):
        if rule:
            yield min_difference(name, metric, rule.min_difference, rule.confidence, found)
    for rate, limit in rules.error_rates.items():
        found = one.paired.difference(_has_status(FinalStatus(rate.removesuffix("_rate"))))
        yield max_increase(name, rate, limit.max_increase, limit.confidence, found)
    for cost, limits in rules.costs.items():
        yield from _cost(name, cost, limits, comparison)


def _enough(
    rules: DatasetRules, comparison: Comparison, one: DatasetComparison
) -> Iterator[Finding]:
    name, least, problems = one.paired.dataset, rules.min_coverage, one.accepted_at_1.problems
    covered = {run.label: _coverage(run, name) for run in (comparison.first, comparison.second)}
    yield premise(
        name,
        "coverage",
        f"≥ {least:.2%}",
        ", ".join(f"{label} {share:.2%}" for label, share in covered.items()),
        holds=min(covered.values()) >= least,
        why="incomplete: finish the run",
    )
    yield premise(
        name,
        "problems",
        f"≥ {rules.min_problems}",
        str(problems),
        holds=problems >= rules.min_problems,
        why="too few problems",
    )


def _coverage(run: ComparedRun, dataset: str) -> float:
    """Judged samples / samples that were planned."""
    verdicts = run.verdicts[dataset]
    planned = {one.get("dataset"): one.get("samples") for one in run.run.datasets}.get(dataset)
    judged = sum(verdict.judged for verdict in verdicts.values())
    return ratio(judged, planned or len(verdicts)) or 0.0


def _cost(dataset: str, metric: str, limits: CostRule, comparison: Comparison) -> Iterator[Finding]:
    first = _number(comparison.first.run.summary.get(dataset), metric)
    second = _number(comparison.second.run.summary.get(dataset), metric)
    if limits.max_value is not None:
        yield at_most(dataset, metric, second, limits.max_value)
    if limits.max_ratio is not None:
        times = None if first is None or second is None else ratio(second, first)
        yield at_most(dataset, metric, times, limits.max_ratio, of="B / A")


def _has_status(status: FinalStatus) -> Callable[[Judged], float]:
    return lambda judged: float(judged.final_status is status)


def _number(metrics: Mapping[str, Any] | None, name: str) -> float | None:
    value = (metrics or {}).get(name)
    return float(value) if isinstance(value, (int, float)) else None
