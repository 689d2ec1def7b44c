"""Release gate: checks a policy's rules against the comparison of two runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from shared.analysis.bootstrap import Floats
from shared.analysis.compare import Comparison, DatasetComparison, PairedSamples
from shared.analysis.gate_policy import (
    Confidence,
    CostRule,
    DatasetRules,
    DifferenceRule,
    IncreaseRule,
    Policy,
)
from shared.analysis.paired import PairedDifference, discordant_interval
from shared.analysis.runs import ComparedRun, DatasetVerdicts
from shared.analysis.sequential import order_key, sequential_mean
from shared.analysis.statistics import ratio
from shared.errors import ConfigError
from shared.statuses import FinalStatus

# Tolerance for the rounding of sums, so that a value equal to the limit passes.
_TOLERANCE = 1e-9
# A value of each sample.
_Value = Callable[[DatasetVerdicts], Floats]


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
            " ".join(filter(None, (one.dataset, one.rule)))
            for one in self.findings
            if one.outcome is self.outcome and not (one.premise and self.outcome is Outcome.PASS)
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
        for one in comparison.datasets
        for finding in _of_dataset(
            policy.rules(one.paired.dataset), comparison, one, sequential=sequential
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
    if any(one.premise and one.outcome is not Outcome.PASS for one in findings):
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
        yield _unmet("", "comparable", "same protocol", line, "not only the model differs")
    for line in comparison.doubts:
        yield _unmet("", "comparable", "same protocol", line, "the protocol may differ")
    for data in comparison.datasets:
        if not data.paired.same_data:
            found = f"{data.accepted_at_1.problems} are the same"
            name = data.paired.dataset
            yield _unmet(name, "comparable", "all problems", found, "the runs' data differ")
    for one in comparison.unshared:
        found = f"only in {one.run}"
        yield _unmet(one.dataset, "comparable", "in both", found, "nothing to pair")
    for run in (comparison.first, comparison.second):
        record, grows = run.record, sequential and run is comparison.second
        if not record.state.published and not grows:
            found = f"{run.label} is {record.state}"
            yield _unmet("", "finished", "both", found, "numbers may change")
        if record.stopped and not grows:
            found = f"{run.label}: {record.stopped.described}"
            why = "no baseline" if run is comparison.first else "use --sequential"
            yield _unmet("", "all problems", "both", found, why)
        if distrust := record.distrust:
            found = f"{run.label}: {distrust[0]}"
            yield _unmet("", "trusted", "both", found, "a sandbox failed canaries")


def _sufficient_data(
    rules: DatasetRules, comparison: Comparison, one: DatasetComparison
) -> Iterator[Finding]:
    name, least, problems = one.paired.dataset, rules.min_coverage, one.accepted_at_1.problems
    covered = {run.label: _coverage(run, name) for run in (comparison.first, comparison.second)}
    coverage = _unmet(
        name,
        "coverage",
        f"≥ {least:.2%}",
        ", ".join(f"{label} {share:.2%}" for label, share in covered.items()),
        "incomplete: finish the run",
    )
    yield coverage if min(covered.values()) < least else _met(coverage)
    limit = f"≥ {rules.min_problems}"
    enough = _unmet(name, "problems", limit, str(problems), "too few problems")
    yield enough if problems < rules.min_problems else _met(enough)


def _unmet(dataset: str, rule: str, limit: str, found: str, why: str) -> Finding:
    """The finding of a premise that does not hold."""
    return Finding(dataset, rule, limit, found, Outcome.UNDECIDED, why, premise=True)


def _met(premise: Finding) -> Finding:
    return replace(premise, outcome=Outcome.PASS, why="")


def _coverage(run: ComparedRun, dataset: str) -> float:
    """Judged samples / planned samples."""
    verdicts = run.verdicts[dataset]
    planned = {one.dataset: one.samples for one in run.record.datasets}.get(dataset)
    return ratio(int(verdicts.judged.sum()), planned or len(verdicts)) or 0.0


# Rules


def _of_dataset(
    rules: DatasetRules, comparison: Comparison, one: DatasetComparison, *, sequential: bool
) -> Iterator[Finding]:
    """Check the rules of a data set.

    While problems are to come, rules about all problems may be undecided, and only new failures can
    fail.
    """
    name, second = one.paired.dataset, comparison.second.record
    partial = sequential and (second.stopped is not None or not second.state.published)
    yield from _sufficient_data(rules, comparison, one)
    if rules.max_new_failures is not None:
        lost = len(one.paired.lost)
        finding = _at_most(name, "new failures", lost, rules.max_new_failures, of="A alone")
        fails = finding.outcome is Outcome.FAIL
        yield finding if fails or not partial else _of_a_part(finding)
    ranges = _Ranges(one, rules.min_problems, sequential=sequential, partial=partial)
    if rules.accepted_at_1:
        found = ranges.accepted(rules.accepted_at_1)
        finding = _min_difference(name, "accepted_at_1", rules.accepted_at_1, found)
        undecided = finding.outcome is Outcome.UNDECIDED and not sequential
        if undecided and one.accepted_at_1.problems:
            finding = replace(finding, why=f"{finding.why} ({_reach(one.accepted_at_1.problems)})")
        if one.corrected:
            found_text = f"{finding.found}; corrected for the tests {_shown(one.corrected)}"
            finding = replace(finding, found=found_text)
        yield finding
    if rules.pass_ratio_mean:
        found = ranges.pass_ratio(rules.pass_ratio_mean)
        yield _min_difference(name, "pass_ratio_mean", rules.pass_ratio_mean, found)
    for rate, limit in rules.error_rates.items():
        status = FinalStatus(rate.removesuffix("_rate"))
        yield _max_increase(name, rate, limit, ranges.with_status(status, limit))
    for cost, limits in rules.costs.items():
        for finding in _cost(name, cost, limits, comparison):
            yield _of_a_part(finding) if partial else finding


def _of_a_part(finding: Finding) -> Finding:
    return replace(finding, outcome=Outcome.UNDECIDED, why="needs all problems")


def _reach(problems: int) -> str:
    """The narrowest interval that so many problems can give: that of two equal runs."""
    half = discordant_interval(0, 0, problems)[1]
    return f"{problems} problems reach ±{100 * half:.2f} at best"


def _cost(dataset: str, metric: str, limits: CostRule, comparison: Comparison) -> Iterator[Finding]:
    first = _number(comparison.first.summary.get(dataset), metric)
    second = _number(comparison.second.summary.get(dataset), metric)
    if limits.max_value is not None:
        yield _at_most(dataset, metric, second, limits.max_value)
    if limits.max_ratio is not None:
        times = None if first is None or second is None else ratio(second, first)
        yield _at_most(dataset, metric, times, limits.max_ratio, of="B / A")


def _has_status(status: FinalStatus) -> _Value:
    return lambda verdicts: verdicts.has_status(status)


def _number(metrics: Mapping[str, object] | None, name: str) -> float | None:
    value = (metrics or {}).get(name)
    return float(value) if isinstance(value, (int, float)) else None


def _at_most(
    dataset: str, rule: str, found: float | None, most: float, *, of: str = "B"
) -> Finding:
    """An upper limit of a number; ``of`` names the number in the table."""
    limit = f"{of} ≤ {most:g}"
    if found is None:
        return Finding(dataset, rule, limit, "unknown", Outcome.UNDECIDED, "not in the summary")
    if found <= most + _TOLERANCE * abs(most):
        return Finding(dataset, rule, limit, f"{found:.4g}", Outcome.PASS, "within")
    return Finding(dataset, rule, limit, f"{found:.4g}", Outcome.FAIL, "beyond")


@dataclass(frozen=True, slots=True)
class _Range:
    """The ends of what must be within a limit, as named and shown; None with too few problems."""

    low: float | None
    high: float | None
    whole: str
    shown: str

    @classmethod
    def of(cls, found: PairedDifference, confidence: Confidence) -> Self:
        if confidence is Confidence.POINT:
            return cls(found.difference, found.difference, "difference", _shown(found))
        low, high = found.ci95 or (None, None)
        return cls(low, high, "whole interval", _shown(found))

    @classmethod
    def of_pass_ratio(cls, one: DatasetComparison, confidence: Confidence) -> Self:
        """The pass ratio may be anything that the cases that were not run leave open."""
        bounds = one.pass_ratio_bounds
        if bounds is None:
            return cls.of(one.pass_ratio_mean, confidence)
        worst, best = cls.of(bounds.worst, confidence), cls.of(bounds.best, confidence)
        shown = f"{worst.shown} to {best.shown}, {one.paired.cut} cut"
        return cls(worst.low, best.high, "whole range", shown)

    @classmethod
    def anytime(
        cls, paired: PairedSamples, limit: float, first: int, least: _Value, most: _Value
    ) -> Self:
        """The confidence sequence when ``limit`` was decided, in the second run's random order."""
        seed = paired.runs[1].record.seed
        order = sorted(
            range(len(paired.problem_ids)),
            key=lambda place: order_key(seed, paired.dataset, paired.problem_ids[place]),
        )
        low, high = (
            paired.problem_means(paired.columns(ours)[1] - paired.columns(theirs)[0])[order]
            for ours, theirs in ((least, most), (most, least))
        )
        found = sequential_mean(low, high, limit, first)
        difference = PairedDifference(
            found.problems, difference=found.mean, ci95=[found.low, found.high]
        )
        shown = f"{_shown(difference)} after {found.problems} of {len(order)}"
        return cls(found.low, found.high, "whole anytime-valid interval", shown)

    @property
    def negated(self) -> "_Range":
        return replace(self, low=_negated(self.high), high=_negated(self.low))


@dataclass(frozen=True, slots=True)
class _Ranges:
    """The ranges of a data set's differences, as the confidence of a rule requires.

    ``first``: the number of problems before which a sequential test decides nothing.
    """

    one: DatasetComparison
    first: int
    sequential: bool
    partial: bool

    def accepted(self, rule: DifferenceRule) -> _Range:
        anytime = self._anytime(rule, rule.min_difference, _accepted, _accepted)
        return anytime or _Range.of(self.one.accepted_at_1, rule.confidence)

    def pass_ratio(self, rule: DifferenceRule) -> _Range:
        anytime = self._anytime(rule, rule.min_difference, _pass_ratio, _pass_ratio_high)
        return anytime or _Range.of_pass_ratio(self.one, rule.confidence)

    def with_status(self, status: FinalStatus, rule: IncreaseRule) -> _Range:
        value = _has_status(status)
        anytime = self._anytime(rule, rule.max_increase, value, value)
        return anytime or _Range.of(self.one.paired.difference(value), rule.confidence)

    def _anytime(
        self, rule: DifferenceRule | IncreaseRule, limit: float, least: _Value, most: _Value
    ) -> _Range | None:
        """None where a fixed number of problems decides."""
        if rule.confidence is Confidence.POINT:
            return _Range(None, None, "", "–") if self.partial else None
        if not self.sequential:
            return None
        return _Range.anytime(self.one.paired, limit, self.first, least, most)


def _accepted(verdicts: DatasetVerdicts) -> Floats:
    return verdicts.accepted.astype(float)


def _pass_ratio(verdicts: DatasetVerdicts) -> Floats:
    return verdicts.pass_ratio


def _pass_ratio_high(verdicts: DatasetVerdicts) -> Floats:
    return verdicts.pass_ratio_high


def _min_difference(dataset: str, metric: str, rule: DifferenceRule, found: _Range) -> Finding:
    """A lower limit of a difference of shares; shown in percentage points."""
    outcome, why = _decide(found, rule.min_difference)
    limit = f"B - A ≥ {100 * rule.min_difference:+.2f}"
    return Finding(dataset, metric, limit, found.shown, outcome, why)


def _max_increase(dataset: str, metric: str, rule: IncreaseRule, found: _Range) -> Finding:
    """An upper limit of a difference."""
    outcome, why = _decide(found.negated, -rule.max_increase)
    limit = f"B - A ≤ {100 * rule.max_increase:+.2f}"
    return Finding(dataset, metric, limit, found.shown, outcome, why)


def _decide(found: _Range, least: float) -> tuple[Outcome, str]:
    """Pass if all of the range is at least ``least``, fail if none of it is."""
    if found.low is None or found.high is None:
        return Outcome.UNDECIDED, "too few problems"
    if found.low >= least - _TOLERANCE:
        return Outcome.PASS, f"{found.whole} within"
    if found.high < least - _TOLERANCE:
        return Outcome.FAIL, f"{found.whole} beyond"
    return Outcome.UNDECIDED, f"{found.whole.removeprefix('whole ')} too wide"


def _shown(found: PairedDifference) -> str:
    if found.difference is None:
        return "no pairs"
    difference = f"{100 * found.difference:+.2f}"
    if found.ci95 is None:
        return difference
    return f"{difference} ({100 * found.ci95[0]:+.2f} … {100 * found.ci95[1]:+.2f})"


def _negated(value: float | None) -> float | None:
    return None if value is None else -value
