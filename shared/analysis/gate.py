"""Release gate: the rules of a policy, a YAML file, checked against the comparison of two runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shared.analysis.catalogue import METRICS, Group, keys
from shared.analysis.compare import Comparison, DatasetComparison
from shared.analysis.paired import discordant_interval, order_key, sequential_mean
from shared.analysis.runs import (
    ComparedRun,
    DatasetVerdicts,
    Value,
    accepted,
    pass_ratio,
    pass_ratio_high,
)
from shared.analysis.statistics import ratio
from shared.config_files import load_document, validate_document
from shared.errors import ConfigError
from shared.statuses import FinalStatus

# Tolerance for the rounding of sums, so that a value equal to the limit passes.
_TOLERANCE = 1e-9
# Of a checkout; an image may have it, too.
_SHIPPED = Path(__file__).parents[2] / "configs" / "gate.yaml"


def _one_of(names: Sequence[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"is not one of {', '.join(names)}")
        return name

    return AfterValidator(check)


_COSTS = [
    metric.key
    for metric in METRICS
    if metric.group is Group.COST and metric.higher_is_better is False
]
CostMetric = Annotated[str, _one_of(_COSTS)]
ErrorRate = Annotated[str, _one_of(keys(Group.ERROR, planned=True))]


class Confidence(StrEnum):
    """The value that must be within the limit."""

    INTERVAL = "interval"
    """The whole 95 % interval; if only part of it is, the rule is undecided."""
    POINT = "point"
    """The observed difference."""


class _Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DifferenceRule(_Rules):
    """Lower limit of second - first, as a share: -0.01 is one percentage point."""

    min_difference: float = Field(ge=-1, le=1)
    confidence: Confidence = Confidence.INTERVAL
    sign: ClassVar[int] = 1

    @property
    def limit(self) -> float:
        return self.min_difference


class IncreaseRule(_Rules):
    """Upper limit of second - first of an error rate."""

    max_increase: float = Field(ge=-1, le=1)
    confidence: Confidence = Confidence.INTERVAL
    sign: ClassVar[int] = -1

    @property
    def limit(self) -> float:
        return self.max_increase


class CostRule(_Rules):
    """Upper limits: ``max_ratio`` of second / first, ``max_value`` of the second itself."""

    max_ratio: float | None = Field(default=None, gt=0)
    max_value: float | None = Field(default=None, ge=0)


class DatasetRules(_Rules):
    """The rules for one data set; a rule that is not set is not checked.

    ``min_coverage``: judged samples / samples, in both runs. ``min_problems``: problems in pairs.
    Below either, the gate is inconclusive. ``max_new_failures``: samples accepted only in the
    first run.
    """

    min_coverage: float = Field(default=1.0, ge=0, le=1)
    min_problems: int = Field(default=1, ge=1)
    max_new_failures: int | None = Field(default=None, ge=0)
    accepted_at_1: DifferenceRule | None = None
    pass_ratio_mean: DifferenceRule | None = None
    error_rates: dict[ErrorRate, IncreaseRule] = Field(default_factory=dict)
    costs: dict[CostMetric, CostRule] = Field(default_factory=dict)


class Policy(_Rules):
    """``default`` applies to every data set; ``datasets`` overrides single rules of it."""

    default: DatasetRules = DatasetRules()
    datasets: dict[str, DatasetRules] = Field(default_factory=dict)

    def rules(self, dataset: str) -> DatasetRules:
        own = self.datasets.get(dataset)
        if own is None:
            return self.default
        rules = {name: getattr(own, name) for name in own.model_fields_set}
        return self.default.model_copy(update=rules)


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy with the name of its file, for those who show a gate's verdict."""

    name: str
    policy: Policy


def read_policy(path: Path) -> Policy:
    """Read and validate a policy.

    Raises:
        ConfigError: The file cannot be read, a key or value is invalid, or there are no rules.
    """
    document = load_document(path)
    try:
        policy = validate_document(Policy, document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if policy == Policy():
        raise ConfigError(f"{path}: no rules; add some under 'default' or 'datasets'")
    return policy


def default_policy(path: Path | None = None) -> NamedPolicy | None:
    """Read a policy that may be left out; then it is the shipped one, where that is installed.

    Raises:
        ConfigError: As :func:`read_policy`.
    """
    if path is None and not _SHIPPED.exists():
        return None
    path = path or _SHIPPED
    return NamedPolicy(path.name, read_policy(path))


# Verdict


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
    names = {*comparison.first.verdicts, *comparison.second.verdicts}
    if unknown := [name for name in policy.datasets if name not in names]:
        raise ConfigError(
            f"the policy has rules for {unknown[0]!r}, which neither run has; "
            f"the runs have {', '.join(sorted(names))}"
        )
    findings = list(_incomparable(comparison, sequential=sequential)) or [
        finding
        for data in comparison.datasets
        for finding in _of_dataset(
            policy.rules(data.dataset), comparison, data, sequential=sequential
        )
    ]
    outcomes = {finding.outcome for finding in findings}
    if any(finding.premise and finding.outcome is not Outcome.PASS for finding in findings):
        outcomes = {Outcome.UNDECIDED}
    order = (Outcome.FAIL, Outcome.UNDECIDED, Outcome.PASS)
    worst = next((outcome for outcome in order if outcome in outcomes), Outcome.PASS)
    return GateReport(worst, findings)


def undecidable_early(policy: Policy, datasets: Sequence[str]) -> list[str]:
    """The rules that let no run stop early with "go", each with its data set."""
    late: list[str] = []
    for dataset in datasets:
        rules = policy.rules(dataset)
        names = ["new failures"] if rules.max_new_failures is not None else []
        names += [
            metric
            for metric, rule, *_ in _differences(rules)
            if rule.confidence is Confidence.POINT
        ]
        late += [f"{dataset} {name}" for name in (*names, *rules.costs)]
    return late


# Premises


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
        elif rule.confidence is Confidence.POINT or not sequential:
            point = rule.confidence is Confidence.POINT
            observed = _fixed_range(data, metric, least, point=point)
        else:
            observed = _anytime_range(data, least, most, rule.limit, rules.min_problems)
        outcome, why = _within(rule, observed)
        undecided = outcome is Outcome.UNDECIDED and not sequential
        if metric == "accepted_at_1" and undecided and (n := data.accepted_at_1.problems):
            # The narrowest interval that so many problems can give is that of two equal runs.
            reach = 100 * discordant_interval(0, 0, n)[1]
            why += f" ({n} problems reach ±{reach:.2f} at best)"
        limit = f"B - A {'≥' if rule.sign > 0 else '≤'} {100 * rule.limit:+.2f}"
        yield Finding(name, metric, limit, observed.shown, outcome, why)
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


def _fixed_range(data: DatasetComparison, metric: str, value: Value, *, point: bool) -> _Range:
    """The difference over all problems (``point``), or its interval."""
    if metric == "accepted_at_1":
        fixed = [data.accepted_at_1]
    elif metric == "pass_ratio_mean":
        bounds = data.pass_ratio_bounds
        fixed = [bounds.worst, bounds.best] if bounds else [data.pass_ratio_mean]
    else:
        fixed = [data.difference(value)]
    ends = [(paired.difference,) * 2 if point else paired.ci95 or (None, None) for paired in fixed]
    low, high = ends[0][0], ends[-1][1]
    texts = [_shown(paired.difference, paired.ci95) for paired in fixed]
    if len(fixed) == 1:
        return _Range(low, high, "difference" if point else "whole interval", texts[0])
    return _Range(low, high, "whole range", f"{' to '.join(texts)}, {data.samples_cut} cut")


def _anytime_range(
    data: DatasetComparison, least: Value, most: Value, limit: float, first: int
) -> _Range:
    """The confidence sequence when ``limit`` was decided, in the second run's random order.

    Nothing is decided before the ``first`` problems.
    """
    seed, names = data.runs[1].record.seed, data.problem_ids
    order = sorted(range(len(names)), key=lambda at: order_key(seed, data.dataset, names[at]))
    low, high = (
        data.problem_means(data.columns(ours)[1] - data.columns(theirs)[0])[order]
        for ours, theirs in ((least, most), (most, least))
    )
    sequence = sequential_mean(low, high, limit, first)
    shown = _shown(sequence.mean, [sequence.low, sequence.high])
    shown += f" after {sequence.problems} of {len(order)}"
    return _Range(sequence.low, sequence.high, "whole anytime-valid interval", shown)


def _within(rule: DifferenceRule | IncreaseRule, observed: _Range) -> tuple[Outcome, str]:
    """Whether a difference of shares keeps a lower, or upper, limit, and why."""
    if observed.low is None or observed.high is None:
        return Outcome.UNDECIDED, "too few problems"
    low, high = sorted((rule.sign * observed.low, rule.sign * observed.high))
    least = rule.sign * rule.limit - _TOLERANCE
    if low >= least:
        return Outcome.PASS, f"{observed.whole} within"
    if high < least:
        return Outcome.FAIL, f"{observed.whole} beyond"
    return Outcome.UNDECIDED, f"{observed.whole.removeprefix('whole ')} too wide"


def _shown(difference: float | None, ci95: Sequence[float] | None) -> str:
    """A difference of shares with its interval, in percentage points."""
    if difference is None:
        return "no pairs"
    interval = f" ({100 * ci95[0]:+.2f} … {100 * ci95[1]:+.2f})" if ci95 else ""
    return f"{100 * difference:+.2f}{interval}"
