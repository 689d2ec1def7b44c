"""Release gate: checks a policy's rules against the comparison of two runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from shared.analysis.compare import Comparison, DatasetComparison
from shared.analysis.gate_policy import (
    Confidence,
    CostRule,
    DatasetRules,
    DifferenceRule,
    IncreaseRule,
    Policy,
)
from shared.analysis.paired import PairedDifference, discordant_interval
from shared.analysis.runs import (
    ComparedRun,
    DatasetVerdicts,
    Value,
    accepted,
    pass_ratio,
    pass_ratio_high,
)
from shared.analysis.sequential import order_key, sequential_mean
from shared.analysis.statistics import ratio
from shared.errors import ConfigError
from shared.statuses import FinalStatus

# Tolerance for the rounding of sums, so that a value equal to the limit passes.
_TOLERANCE = 1e-9


class Outcome(StrEnum):
    """The outcome of one rule, or of the whole gate."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule, the observed value, and why it passes or fails.

    ``premise``: a condition of all other rules; if it does not hold, the gate is undecided.
    """

    dataset: str
    rule: str
    limit: str
    found: str
    outcome: Outcome
    why: str
    premise: bool = False


@dataclass(frozen=True, slots=True)
class GateReport:
    outcome: Outcome
    findings: list[Finding]

    def deciding_rules(self) -> list[str]:
        """The rules with the gate's own outcome, each with its data set."""
        return [
            " ".join(filter(None, (finding.dataset, finding.rule)))
            for finding in self.findings
            if finding.outcome is self.outcome
            and not (finding.premise and self.outcome is Outcome.PASS)
        ]


def evaluate(policy: Policy, comparison: Comparison, *, sequential: bool = False) -> GateReport:
    """Check all rules; if the runs are not comparable, only those findings are reported.

    Args:
        policy: The rules.
        comparison: The runs.
        sequential: Decide rules about intervals by an anytime-valid test, problem by problem in the
            second run's random order. That run may have stopped early, or be in progress.

    Raises:
        ConfigError: The policy names a data set that neither run has.
    """
    _check_names(policy, comparison)
    findings = list(_incomparable(comparison, sequential=sequential)) or [
        finding
        for data in comparison.datasets
        for finding in _of_dataset(
            policy.rules(data.dataset), comparison, data, sequential=sequential
        )
    ]
    return GateReport(_overall(findings), findings)


def undecidable_early(policy: Policy, datasets: Sequence[str]) -> list[str]:
    """The rules that let no run stop early with "go", each with its data set."""
    return [
        f"{name} {rule}" for name in datasets for rule in _needing_all_problems(policy.rules(name))
    ]


def _needing_all_problems(rules: DatasetRules) -> Iterator[str]:
    if rules.max_new_failures is not None:
        yield "new failures"
    differences = {"accepted_at_1": rules.accepted_at_1, "pass_ratio_mean": rules.pass_ratio_mean}
    for name, rule in {**differences, **rules.error_rates}.items():
        if rule is not None and rule.confidence is Confidence.POINT:
            yield name
    yield from rules.costs


def _overall(findings: Sequence[Finding]) -> Outcome:
    """In this order: a premise that does not hold, a failed rule, an undecided rule."""
    if any(finding.premise and finding.outcome is not Outcome.PASS for finding in findings):
        return Outcome.UNDECIDED
    outcomes = {finding.outcome for finding in findings}
    for outcome in (Outcome.FAIL, Outcome.UNDECIDED):
        if outcome in outcomes:
            return outcome
    return Outcome.PASS


# Premises


def _check_names(policy: Policy, comparison: Comparison) -> None:
    known = {*comparison.first.verdicts, *comparison.second.verdicts}
    if unknown := [name for name in policy.datasets if name not in known]:
        raise ConfigError(
            f"the policy has rules for {unknown[0]!r}, which neither run has; "
            f"the runs have {', '.join(sorted(known))}"
        )


def _incomparable(comparison: Comparison, *, sequential: bool) -> Iterator[Finding]:
    for line in comparison.warnings:
        yield _premise("", "comparable", "same protocol", line, "not only the model differs")
    for line in comparison.doubts:
        yield _premise("", "comparable", "same protocol", line, "the protocol may differ")
    for data in comparison.datasets:
        if not data.same_data:
            observed = f"{data.accepted_at_1.problems} are the same"
            name = data.dataset
            yield _premise(name, "comparable", "all problems", observed, "the runs' data differ")
    for unshared in comparison.unshared:
        observed = f"only in {unshared.run}"
        yield _premise(unshared.dataset, "comparable", "in both", observed, "nothing to pair")
    for run in (comparison.first, comparison.second):
        record, grows = run.record, sequential and run is comparison.second
        if not record.state.published and not grows:
            observed = f"{run.label} is {record.state}"
            yield _premise("", "finished", "both", observed, "numbers may change")
        if record.stopped and not grows:
            observed = f"{run.label}: {record.stopped.described}"
            why = "no baseline" if run is comparison.first else "use --sequential"
            yield _premise("", "all problems", "both", observed, why)
        if distrust := record.distrust:
            observed = f"{run.label}: {distrust[0]}"
            yield _premise("", "trusted", "both", observed, "a sandbox failed canaries")


def _sufficient_data(
    rules: DatasetRules, comparison: Comparison, data: DatasetComparison
) -> Iterator[Finding]:
    name, least, problems = data.dataset, rules.min_coverage, data.accepted_at_1.problems
    covered = {run.label: _coverage(run, name) for run in (comparison.first, comparison.second)}
    shares = ", ".join(f"{label} {share:.2%}" for label, share in covered.items())
    why = "incomplete: finish the run"
    holds = min(covered.values()) >= least
    yield _premise(name, "coverage", f"≥ {least:.2%}", shares, why, holds=holds)
    limit, holds = f"≥ {rules.min_problems}", problems >= rules.min_problems
    yield _premise(name, "problems", limit, str(problems), "too few problems", holds=holds)


def _premise(
    dataset: str, rule: str, limit: str, observed: str, why: str, *, holds: bool = False
) -> Finding:
    """The finding of a premise; ``why`` is for one that does not hold."""
    outcome = Outcome.PASS if holds else Outcome.UNDECIDED
    return Finding(dataset, rule, limit, observed, outcome, "" if holds else why, premise=True)


def _coverage(run: ComparedRun, dataset: str) -> float:
    """Judged samples / planned samples."""
    verdicts = run.verdicts[dataset]
    planned = {recorded.dataset: recorded.samples for recorded in run.record.datasets}.get(dataset)
    return ratio(int(verdicts.judged.sum()), planned or len(verdicts)) or 0.0


# Rules


def _of_dataset(
    rules: DatasetRules, comparison: Comparison, data: DatasetComparison, *, sequential: bool
) -> Iterator[Finding]:
    """Check the rules of a data set.

    While problems are to come, rules about all problems may be undecided, and only new failures can
    fail.
    """
    name, second = data.dataset, comparison.second.record
    ongoing = sequential and (second.stopped is not None or not second.state.published)
    yield from _sufficient_data(rules, comparison, data)
    if rules.max_new_failures is not None:
        lost = int((data.flipped < 0).sum())
        finding = _at_most(name, "new failures", lost, rules.max_new_failures, of="A alone")
        fails = finding.outcome is Outcome.FAIL
        yield finding if fails or not ongoing else _of_a_part(finding)
    for metric, rule, least, most in _differences(rules):
        if rule.confidence is Confidence.POINT and ongoing:
            observed = _Range(None, None, "", "–")
        elif rule.confidence is Confidence.POINT:
            observed = _fixed_range(data, metric, least, point=True)
        elif sequential:
            observed = _anytime_range(data, least, most, _limit(rule), rules.min_problems)
        else:
            observed = _fixed_range(data, metric, least)
        finding = _within(name, metric, rule, observed)
        undecided = finding.outcome is Outcome.UNDECIDED and not sequential
        if metric == "accepted_at_1" and undecided and (n := data.accepted_at_1.problems):
            # The narrowest interval that so many problems can give is that of two equal runs.
            reach = f"{n} problems reach ±{100 * discordant_interval(0, 0, n)[1]:.2f} at best"
            finding = replace(finding, why=f"{finding.why} ({reach})")
        yield finding
    for cost, limits in rules.costs.items():
        for finding in _cost(name, cost, limits, comparison):
            yield _of_a_part(finding) if ongoing else finding


def _of_a_part(finding: Finding) -> Finding:
    return replace(finding, outcome=Outcome.UNDECIDED, why="needs all problems")


def _differences(
    rules: DatasetRules,
) -> Iterator[tuple[str, DifferenceRule | IncreaseRule, Value, Value]]:
    """The rules about differences, each with its metric and the value of a sample.

    There are two values: if the cases that were not run failed, and if they passed.
    """
    if rules.accepted_at_1:
        yield "accepted_at_1", rules.accepted_at_1, accepted, accepted
    if rules.pass_ratio_mean:
        yield "pass_ratio_mean", rules.pass_ratio_mean, pass_ratio, pass_ratio_high
    for rate, rule in rules.error_rates.items():
        status = FinalStatus(rate.removesuffix("_rate"))
        has_status = partial(DatasetVerdicts.has_status, status=status)
        yield rate, rule, has_status, has_status


def _limit(rule: DifferenceRule | IncreaseRule) -> float:
    return rule.max_increase if isinstance(rule, IncreaseRule) else rule.min_difference


def _cost(dataset: str, metric: str, limits: CostRule, comparison: Comparison) -> Iterator[Finding]:
    first, second = (
        value if isinstance(value, int | float) else None
        for run in (comparison.first, comparison.second)
        for value in [run.summary.get(dataset, {}).get(metric)]
    )
    if limits.max_value is not None:
        yield _at_most(dataset, metric, second, limits.max_value)
    if limits.max_ratio is not None:
        times = None if first is None or second is None else ratio(second, first)
        yield _at_most(dataset, metric, times, limits.max_ratio, of="B / A")


def _at_most(
    dataset: str, rule: str, observed: float | None, most: float, *, of: str = "B"
) -> Finding:
    """An upper limit of a number; ``of`` names the number in the table."""
    limit = f"{of} ≤ {most:g}"
    if observed is None:
        return Finding(dataset, rule, limit, "unknown", Outcome.UNDECIDED, "not in the summary")
    within = observed <= most + _TOLERANCE * abs(most)
    outcome, why = (Outcome.PASS, "within") if within else (Outcome.FAIL, "beyond")
    return Finding(dataset, rule, limit, f"{observed:.4g}", outcome, why)


class _Range(NamedTuple):
    """The ends of what must be within a limit, as named and shown; None with too few problems."""

    low: float | None
    high: float | None
    whole: str
    shown: str


def _fixed_range(
    data: DatasetComparison, metric: str, value: Value, *, point: bool = False
) -> _Range:
    """The difference over all problems, or its interval."""
    if metric == "accepted_at_1":
        fixed = [data.accepted_at_1]
    elif metric == "pass_ratio_mean":
        bounds = data.pass_ratio_bounds
        fixed = [bounds.worst, bounds.best] if bounds else [data.pass_ratio_mean]
    else:
        fixed = [data.difference(value)]
    ends = [(paired.difference,) * 2 if point else paired.ci95 or (None, None) for paired in fixed]
    low, high = ends[0][0], ends[-1][1]
    if len(fixed) == 1:
        return _Range(low, high, "difference" if point else "whole interval", _shown(fixed[0]))
    shown = f"{_shown(fixed[0])} to {_shown(fixed[-1])}, {data.cut} cut"
    return _Range(low, high, "whole range", shown)


def _anytime_range(
    data: DatasetComparison, least: Value, most: Value, limit: float, first: int
) -> _Range:
    """The confidence sequence when ``limit`` was decided, in the second run's random order.

    Nothing is decided before the ``first`` problems.
    """
    seed = data.runs[1].record.seed
    order = sorted(
        range(len(data.problem_ids)),
        key=lambda place: order_key(seed, data.dataset, data.problem_ids[place]),
    )
    low, high = (
        data.problem_means(data.columns(ours)[1] - data.columns(theirs)[0])[order]
        for ours, theirs in ((least, most), (most, least))
    )
    sequence = sequential_mean(low, high, limit, first)
    shown = _shown(
        PairedDifference(
            sequence.problems, difference=sequence.mean, ci95=[sequence.low, sequence.high]
        )
    )
    shown += f" after {sequence.problems} of {len(order)}"
    return _Range(sequence.low, sequence.high, "whole anytime-valid interval", shown)


def _within(
    dataset: str, metric: str, rule: DifferenceRule | IncreaseRule, observed: _Range
) -> Finding:
    """A lower, or upper, limit of a difference of shares; shown in percentage points."""
    limit, low, high = _limit(rule), observed.low, observed.high
    text = f"B - A {'≤' if isinstance(rule, IncreaseRule) else '≥'} {100 * limit:+.2f}"
    if low is None or high is None:
        outcome, why = Outcome.UNDECIDED, "too few problems"
        return Finding(dataset, metric, text, observed.shown, outcome, why)
    if isinstance(rule, IncreaseRule):
        limit, low, high = -limit, -high, -low
    if low >= limit - _TOLERANCE:
        outcome, why = Outcome.PASS, f"{observed.whole} within"
    elif high < limit - _TOLERANCE:
        outcome, why = Outcome.FAIL, f"{observed.whole} beyond"
    else:
        outcome, why = Outcome.UNDECIDED, f"{observed.whole.removeprefix('whole ')} too wide"
    return Finding(dataset, metric, text, observed.shown, outcome, why)


def _shown(paired: PairedDifference) -> str:
    if paired.difference is None:
        return "no pairs"
    difference = f"{100 * paired.difference:+.2f}"
    if paired.ci95 is None:
        return difference
    return f"{difference} ({100 * paired.ci95[0]:+.2f} … {100 * paired.ci95[1]:+.2f})"
