"""Release gate: checks a policy's rules against the comparison of two runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from shared.analysis.bootstrap import Floats
from shared.analysis.compare import Comparison, DatasetComparison
from shared.analysis.gate_policy import (
    Confidence,
    CostRule,
    DatasetRules,
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
    if rule := rules.accepted_at_1:
        limit = rule.min_difference
        found = ranges.of(rule.confidence, limit, lambda: [one.accepted_at_1], _accepted)
        finding = _difference(name, "accepted_at_1", limit, found)
        undecided = finding.outcome is Outcome.UNDECIDED and not sequential
        if undecided and one.accepted_at_1.problems:
            finding = replace(finding, why=f"{finding.why} ({_reach(one.accepted_at_1.problems)})")
        yield finding
    if rule := rules.pass_ratio_mean:
        limit, bounds = rule.min_difference, one.pass_ratio_bounds
        fixed = [bounds.worst, bounds.best] if bounds else [one.pass_ratio_mean]
        values = (_pass_ratio, _pass_ratio_high)
        found = ranges.of(rule.confidence, limit, lambda: fixed, *values)
        yield _difference(name, "pass_ratio_mean", limit, found)
    for rate, increase in rules.error_rates.items():
        yield _error_rate(rate, increase, ranges)
    for cost, limits in rules.costs.items():
        for finding in _cost(name, cost, limits, comparison):
            yield _of_a_part(finding) if partial else finding


def _of_a_part(finding: Finding) -> Finding:
    return replace(finding, outcome=Outcome.UNDECIDED, why="needs all problems")


def _reach(problems: int) -> str:
    """The narrowest interval that so many problems can give: that of two equal runs."""
    half = discordant_interval(0, 0, problems)[1]
    return f"{problems} problems reach ±{100 * half:.2f} at best"


def _error_rate(rate: str, rule: IncreaseRule, ranges: "_Ranges") -> Finding:
    paired, status = ranges.one.paired, FinalStatus(rate.removesuffix("_rate"))

    def has_status(verdicts: DatasetVerdicts) -> Floats:
        return verdicts.has_status(status)

    found = ranges.of(
        rule.confidence, rule.max_increase, lambda: [paired.difference(has_status)], has_status
    )
    return _difference(paired.dataset, rate, rule.max_increase, found, most=True)


def _cost(dataset: str, metric: str, limits: CostRule, comparison: Comparison) -> Iterator[Finding]:
    first = _number(comparison.first.summary.get(dataset), metric)
    second = _number(comparison.second.summary.get(dataset), metric)
    if limits.max_value is not None:
        yield _at_most(dataset, metric, second, limits.max_value)
    if limits.max_ratio is not None:
        times = None if first is None or second is None else ratio(second, first)
        yield _at_most(dataset, metric, times, limits.max_ratio, of="B / A")


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
    within = found <= most + _TOLERANCE * abs(most)
    outcome, why = (Outcome.PASS, "within") if within else (Outcome.FAIL, "beyond")
    return Finding(dataset, rule, limit, f"{found:.4g}", outcome, why)


@dataclass(frozen=True, slots=True)
class _Range:
    """The ends of what must be within a limit, as named and shown; None with too few problems."""

    low: float | None
    high: float | None
    whole: str
    shown: str


@dataclass(frozen=True, slots=True)
class _Ranges:
    """The ranges of a data set's differences, as the confidence of a rule requires.

    ``first``: the number of problems before which a sequential test decides nothing.
    """

    one: DatasetComparison
    first: int
    sequential: bool
    partial: bool

    def of(
        self,
        confidence: Confidence,
        limit: float,
        fixed: Callable[[], Sequence[PairedDifference]],
        least: _Value,
        most: _Value | None = None,
    ) -> _Range:
        """The range of a difference.

        Args:
            confidence: That of the rule.
            limit: What a sequential test decides about.
            fixed: The difference over all problems, or the least and the greatest that the cases
                which were not run leave open.
            least: The value of each sample for a sequential test.
            most: The value if all cases that were not run passed.
        """
        point = confidence is Confidence.POINT
        if point and self.partial:
            return _Range(None, None, "", "–")
        if self.sequential and not point:
            return self._anytime(limit, least, most or least)
        ranges = []
        for one in fixed():
            low, high = (one.difference,) * 2 if point else one.ci95 or (None, None)
            name = "difference" if point else "whole interval"
            ranges.append(_Range(low, high, name, _shown(one)))
        worst, best = ranges[0], ranges[-1]
        if len(ranges) == 1:
            return worst
        shown = f"{worst.shown} to {best.shown}, {self.one.paired.cut} cut"
        return _Range(worst.low, best.high, "whole range", shown)

    def _anytime(self, limit: float, least: _Value, most: _Value) -> _Range:
        """The confidence sequence when ``limit`` was decided, in the second run's random order."""
        paired = self.one.paired
        seed = paired.runs[1].record.seed
        order = sorted(
            range(len(paired.problem_ids)),
            key=lambda place: order_key(seed, paired.dataset, paired.problem_ids[place]),
        )
        low, high = (
            paired.problem_means(paired.columns(ours)[1] - paired.columns(theirs)[0])[order]
            for ours, theirs in ((least, most), (most, least))
        )
        found = sequential_mean(low, high, limit, self.first)
        difference = PairedDifference(
            found.problems, difference=found.mean, ci95=[found.low, found.high]
        )
        shown = f"{_shown(difference)} after {found.problems} of {len(order)}"
        return _Range(found.low, found.high, "whole anytime-valid interval", shown)


def _accepted(verdicts: DatasetVerdicts) -> Floats:
    return verdicts.accepted.astype(float)


def _pass_ratio(verdicts: DatasetVerdicts) -> Floats:
    return verdicts.pass_ratio


def _pass_ratio_high(verdicts: DatasetVerdicts) -> Floats:
    return verdicts.pass_ratio_high


def _difference(
    dataset: str, metric: str, limit: float, found: _Range, *, most: bool = False
) -> Finding:
    """A lower, or upper, limit of a difference of shares; shown in percentage points."""
    if most:
        low, high = (None if end is None else -end for end in (found.high, found.low))
        outcome, why = _decide(replace(found, low=low, high=high), -limit)
    else:
        outcome, why = _decide(found, limit)
    text = f"B - A {'≤' if most else '≥'} {100 * limit:+.2f}"
    return Finding(dataset, metric, text, found.shown, outcome, why)


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
