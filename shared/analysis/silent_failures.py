"""Signs of silent failures: a run that ended well, but whose figures may not be the model's.

Random weights, a missing chat template, an extraction that finds no code, a slow sandbox: each
leaves a trace in the counts of the answers. docs/acceptance.md has the limits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.analysis.catalogue import BY_KEY
from shared.analysis.evidence import (
    AcceptanceFinding,
    AnswerCounts,
    Check,
    Evidence,
    Mark,
    Result,
    Rule,
    check_all,
    failure,
    passed,
    warning,
)
from shared.analysis.statistics import ratio, wilson_interval
from shared.statuses import FinalStatus


@dataclass(frozen=True, slots=True)
class TypicalRange:
    """Typical lowest and highest value of a metric, for models of some sizes.

    Attributes:
        metric: Its key.
        datasets: Data sets that the range is for.
        smallest: Least billions of parameters of the models.
        below: Billions of parameters that the models have fewer of.
        low: Typical lowest value, a share.
        high: Typical highest value.
        of: The models, in words.
    """

    metric: str
    datasets: tuple[str, ...]
    smallest: float
    below: float
    low: float
    high: float
    of: str

    def is_for(self, dataset: str, size: float) -> bool:
        return dataset in self.datasets and self.smallest <= size < self.below


def _code_contests(metric: str, low: float, high: float) -> TypicalRange:
    datasets = ("codecontests_valid", "codecontests_test")
    return TypicalRange(metric, datasets, 6, 9, low, high, "7B base models, greedy")


def _humaneval(smallest: float, below: float, low: float, high: float, of: str) -> TypicalRange:
    return TypicalRange("accepted_at_1", ("humaneval",), smallest, below, low, high, of)


# docs/acceptance.md has the models and sources.
_TYPICAL = (
    _code_contests("accepted_at_1", 0.03, 0.10),
    _code_contests("pass_ratio_mean", 0.10, 0.25),
    _code_contests("exec_success_rate", 0.50, 0.80),
    _code_contests("syntax_error_rate", 0.05, 0.20),
    _code_contests("timeout_rate", 0.05, 0.15),
    _humaneval(0.3, 2, 0.10, 0.75, "models of 0.3 to 2 B"),
    _humaneval(2, 5, 0.15, 0.85, "models of 2 to 5 B"),
    _humaneval(5, 10, 0.25, 0.90, "models of 5 to 10 B"),
    _humaneval(10, 20, 0.30, 0.90, "models of 10 to 20 B"),
    _humaneval(20, 40, 0.50, 0.95, "models of 20 to 40 B"),
    _humaneval(40, float("inf"), 0.55, 0.95, "models of 40 B and more"),
)
_FEW = 20
"""Judged samples below which a small share tells nothing."""
_FEW_STATUSES = 10
"""Judged samples below which it may be chance that almost all have one status."""
# Shares of the judged samples above which something is wrong.
_ONE_STATUS = 0.9
_TRUNCATED = 0.05
_WITHOUT_CODE = 0.1
_TIMEOUTS = 0.2
_NAMED = 3
"""Missing modules that a finding names."""


def silent_failures(evidence: Evidence) -> list[AcceptanceFinding]:
    """The signs of silent failures in a run that has just ended, which need not be a baseline."""
    return [
        one
        for one in check_all(SIGNS, evidence)
        # All answers may be right: they may be reference solutions. The size may be unknown.
        if one.mark is Mark.FAILURE
        or (one.mark is Mark.WARNING and one.dataset and not _all_right(evidence, one))
    ]


def _all_right(evidence: Evidence, finding: AcceptanceFinding) -> bool:
    counts = evidence.answers[finding.dataset]
    return finding.check is Check.ONE_STATUS and _most_common(counts) is FinalStatus.SUCCESS


def _model(evidence: Evidence) -> Iterator[Result]:
    if looks_random(evidence.record.generator):
        step = "set actor_rollout_ref.rollout.load_format=auto, and check the model's files"
        yield failure("the server's self-check says random weights", step)
    else:
        size = "--size adds typical ranges" if evidence.size is None else f"{evidence.size:g} B"
        yield passed(f"{evidence.record.served_model or 'unnamed'}, {size}")


def looks_random(generator: object) -> bool:
    """Whether a generator's self-check has found random weights."""
    if not isinstance(generator, dict):
        return False
    return generator.get("looks_random") is True or any(map(looks_random, generator.values()))


def _zero(evidence: Evidence) -> Iterator[Result]:
    judged = {name: one for name, one in _judged(evidence) if one.judged}
    accepted = {name: one.statuses[FinalStatus.SUCCESS] for name, one in judged.items()}
    nothing = not any(accepted.values())
    enough = sum(one.judged for one in judged.values()) >= _FEW
    for name, one in judged.items():
        mark, step = Mark.PASS, ""
        found = f"{accepted[name]} of {one.judged} accepted"
        if not accepted[name] and (nothing and enough):
            mark = Mark.FAILURE
        elif not accepted[name] and one.judged >= _FEW:
            mark = Mark.WARNING
        if mark is not Mark.PASS:
            if evidence.summary.get(name, {}).get("pass_ratio_mean") == 0:
                found += ", and no test passed"
            step = "read answers in qa_logs: extraction, format of the tests, load_format"
        yield Result(mark, found, step, name)


def _one_status(evidence: Evidence) -> Iterator[Result]:
    for name, one in _judged(evidence):
        status = _most_common(one)
        share = ratio(one.statuses[status], one.judged) or 0.0
        found, mark, step = f"{status} {share:.1%}", Mark.PASS, ""
        if (
            share > _ONE_STATUS
            and one.judged >= _FEW_STATUSES
            and not _expected(evidence, name, status)
        ):
            mark = Mark.WARNING
            step = _STEPS[status]
        yield Result(mark, found, step, name)


_STEPS: Mapping[FinalStatus, str] = {
    FinalStatus.SUCCESS: "look for the set in the training data: plumb data contamination",
    FinalStatus.WRONG_ANSWER: "compare outputs in qa_logs: judge.checker, format of the tests",
    FinalStatus.RUNTIME_ERROR: "read stderr in qa_logs: a missing module, sandbox.memory_limit_mb",
    FinalStatus.TIMEOUT: "check the sandbox with plumb doctor; raise sandbox.timeout",
    FinalStatus.SYNTAX_ERROR: "read answers in qa_logs: the prompt, the chat template",
    FinalStatus.EMPTY_OUTPUT: "read answers in qa_logs: the chat template, generation.stop",
}


def _expected(evidence: Evidence, name: str, status: FinalStatus) -> bool:
    """Whether almost all answers are right because that is typical of the model's size."""
    if status is not FinalStatus.SUCCESS or evidence.size is None:
        return False
    return any(
        one.metric == "accepted_at_1" and one.high > _ONE_STATUS and one.is_for(name, evidence.size)
        for one in _TYPICAL
    )


def _truncated(evidence: Evidence) -> Iterator[Result]:
    length = evidence.config.actor_rollout_ref.rollout.response_length
    step = f"raise actor_rollout_ref.rollout.response_length ({length}), or set generation.stop"
    for name, one in _judged(evidence):
        if one.finished:
            yield _share(name, one.truncated, one.finished, _TRUNCATED, step)
        else:
            yield passed("not recorded why answers end", name)


def _without_code(evidence: Evidence) -> Iterator[Result]:
    step = "read answers in qa_logs: the prompt (data.templates)"
    for name, one in _judged(evidence):
        yield _share(name, one.without_code, one.judged, _WITHOUT_CODE, step)


def _timeouts(evidence: Evidence) -> Iterator[Result]:
    step = "check the sandbox with plumb doctor; judge again with a longer sandbox.timeout"
    for name, one in _judged(evidence):
        yield _share(name, one.statuses[FinalStatus.TIMEOUT], one.judged, _TIMEOUTS, step)


def _modules(evidence: Evidence) -> Iterator[Result]:
    step = "check the sandbox's modules with plumb doctor (docs/judging.md#modules)"
    for name, one in _judged(evidence):
        lacking = one.missing_modules
        if not lacking:
            yield passed("no answer failed for a missing module", name)
            continue
        names = [f"{module} ({count})" for module, count in lacking.most_common(_NAMED)]
        listed = ", ".join([*names, *(["…"] if len(lacking) > _NAMED else [])])
        count = f"{lacking.total()} of {one.judged} failed for a missing module"
        yield warning(f"{count}: {listed}", step, name)


def _typical(evidence: Evidence) -> Iterator[Result]:
    if (size := evidence.size) is None:
        return
    for name in evidence.datasets:
        within = known = 0
        metrics = evidence.summary.get(name, {})
        for typical in (one for one in _TYPICAL if one.is_for(name, size)):
            value, interval = metrics.get(typical.metric), metrics.get(f"{typical.metric}_ci95")
            if not isinstance(interval, list) or isinstance(value, list | None):
                continue
            known += 1
            if interval[1] < typical.low or interval[0] > typical.high:
                yield _unusual(name, value, typical)
            else:
                within += 1
        if within or not known:
            found = f"{within} of {known} figures within" if known else "no range is known"
            yield passed(found, name)


def _unusual(dataset: str, value: float, typical: TypicalRange) -> Result:
    usual = f"{100 * typical.low:.0f}-{100 * typical.high:.0f} %"
    low = (value < typical.low) == bool(BY_KEY[typical.metric].higher_is_better)
    step = "read answers in qa_logs: the chat template, extraction, load_format"
    if not low:
        step = "look for the set in the training data: plumb data contamination"
    return warning(f"{typical.metric} {value:.1%}; {typical.of}: {usual}", step, dataset)


def _judged(evidence: Evidence) -> Iterator[tuple[str, AnswerCounts]]:
    for name in evidence.datasets:
        if (counts := evidence.answers.get(name)) and counts.judged:
            yield name, counts


def _most_common(counts: AnswerCounts) -> FinalStatus:
    judged = [status for status in FinalStatus if status is not FinalStatus.API_ERROR]
    return max(judged, key=lambda status: counts.statuses[status])


def _share(dataset: str, part: int, whole: int, limit: float, step: str) -> Result:
    """A share of answers that is suspicious above a limit."""
    share = ratio(part, whole) or 0.0
    # Of few answers only a share that is hardly chance tells something.
    least, _ = wilson_interval(share, whole) or (0.0, 1.0)
    found = f"{part} of {whole}" + (f" ({share:.1%})" if part else "")
    if share > limit and (whole >= _FEW or least > limit):
        return warning(f"{found}, above {limit:.0%}", step, dataset)
    return passed(found, dataset)


SIGNS: Mapping[Check, Rule] = {
    Check.MODEL: _model,
    Check.ZERO: _zero,
    Check.ONE_STATUS: _one_status,
    Check.TRUNCATED: _truncated,
    Check.WITHOUT_CODE: _without_code,
    Check.TIMEOUTS: _timeouts,
    Check.MODULES: _modules,
    Check.TYPICAL: _typical,
}
"""The rules by their check, in the order of a report."""
