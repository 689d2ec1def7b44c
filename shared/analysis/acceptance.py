"""Acceptance of a baseline run: what it needs, and signs of silent failures.

Each rule yields findings: pass, warning or failure, the figure, and the next step. The rules are
functions of :class:`Evidence`; docs/acceptance.md has them with their limits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shared.analysis.catalogue import BY_KEY, Group, keys
from shared.analysis.evidence import (
    BASELINE_SETS,
    AcceptanceFinding,
    AnswerCounts,
    Check,
    Evidence,
    Mark,
)
from shared.analysis.statistics import Metrics, ratio, wilson_interval
from shared.canaries import REJUDGE
from shared.config import QUOTAS, RULES, Config
from shared.protocol import shown
from shared.run_record import RunState
from shared.statuses import FinalStatus


class Result(NamedTuple):
    """An outcome of a rule, as in :class:`AcceptanceFinding`."""

    mark: Mark
    found: str
    next_step: str = ""
    dataset: str = ""


Rule = Callable[[Evidence], Iterator[Result]]
"""A check: yields its results, for each data set or for the run."""


def passed(found: str, dataset: str = "") -> Result:
    return Result(Mark.PASS, found, dataset=dataset)


def warning(found: str, next_step: str, dataset: str = "") -> Result:
    return Result(Mark.WARNING, found, next_step, dataset)


def failure(found: str, next_step: str, dataset: str = "") -> Result:
    return Result(Mark.FAILURE, found, next_step, dataset)


# Signs of silent failures: a run that ended well, but whose figures may not be the model's. Random
# weights, a missing chat template, an extraction that finds no code, a slow sandbox: each leaves a
# trace in the counts of the answers.


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
        for one in _findings(SIGNS, evidence)
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


# Rules about the run


_LEFT_OUT = 0.05
"""Share of a set's problems that may be missing: rows without tests, ``data.exclude_quality``."""
_UNJUDGED = 0.01
"""Share of samples without a verdict from which infrastructure failed systematically."""
_KINDS_OF_METRICS = {
    str(group): keys(group, planned=True) for group in (Group.QUALITY, Group.COST, Group.ERROR)
}
_PER_SOLVED = "cost_per_solved_"
_PREPARE = "plumb data prepare --config configs/data.yaml, and run on its files"
_PROTOCOL = (
    "actor_rollout_ref.rollout.temperature", "actor_rollout_ref.rollout.top_p",
    "actor_rollout_ref.rollout.top_k", "actor_rollout_ref.rollout.do_sample",
    "actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.prompt_length",
    "actor_rollout_ref.rollout.response_length", "sandbox.timeout", "sandbox.memory_limit_mb",
    "judge.language",
)  # fmt: skip
"""The leaves that the baseline fixes; its values are the defaults."""


@dataclass(frozen=True, slots=True)
class AcceptanceReport:
    """All findings on a run; ``outcome`` is the worst mark."""

    run: str
    folder: str
    outcome: Mark
    findings: list[AcceptanceFinding]

    def deciding_checks(self) -> list[Check]:
        """The checks with a finding that has the outcome's mark."""
        found = (one.check for one in self.findings if one.mark is self.outcome)
        return list(dict.fromkeys(found))


def report(evidence: Evidence, folder: str, without: Sequence[Check] = ()) -> AcceptanceReport:
    """Check everything but ``without``."""
    rules = {check: rule for check, rule in _RULES.items() if check not in without}
    findings = _findings(rules, evidence)
    marks = [finding.mark for finding in findings]
    outcome = next((mark for mark in (Mark.FAILURE, Mark.WARNING) if mark in marks), Mark.PASS)
    return AcceptanceReport(evidence.record.run, folder, outcome, findings)


def _state(evidence: Evidence) -> Iterator[Result]:
    record = evidence.record
    for line in evidence.unreadable:
        yield failure(line, "publish the run again by repeating its command")
    if record.state is RunState.FAILED:
        step = "make room or fix the folder, then repeat the run's command: it only publishes"
        yield failure("failed: the artifacts could not be written", step)
    elif not record.state.published:
        yield failure(str(record.state), "repeat the run's command to finish it")
    elif record.stopped:
        step = "run all problems, without --until-decided, into another folder"
        yield failure(record.stopped.described, step)
    elif not evidence.unreadable:
        yield passed(str(record.state))


def _sets(evidence: Evidence) -> Iterator[Result]:
    planned = {one.dataset: one.problems for one in evidence.record.datasets}
    for name, wanted in BASELINE_SETS.items():
        if name not in planned:
            step = f"add {name}.parquet to data.eval_files (plumb data prepare makes it)"
            yield failure("not in the run", step, name)
            continue
        found, mark, step = f"{planned[name]} of {wanted} problems", Mark.PASS, ""
        limit = evidence.config.data.limit
        if planned[name] != wanted:
            lacks = wanted - planned[name]
            few = 0 < lacks <= _LEFT_OUT * wanted
            mark = Mark.WARNING if few else Mark.FAILURE
            step = _PREPARE
            if few:
                step = f"see dropped_{name}.jsonl and data.exclude_quality for those left out"
            if limit is not None and limit <= planned[name]:
                found, step = f"{found} (data.limit={limit})", "run with data.limit=null"
        yield Result(mark, found, step, name)


def _verdicts(evidence: Evidence) -> Iterator[Result]:
    samples = {one.dataset: one.samples for one in evidence.record.datasets}
    for name in evidence.datasets:
        counts = evidence.answers.get(name, AnswerCounts())
        missing = samples[name] - counts.judged
        share = ratio(missing, samples[name]) or 0.0
        found, mark, step = f"{counts.judged} of {samples[name]} judged", Mark.PASS, ""
        if missing > 0:
            mark = Mark.FAILURE if share > _UNJUDGED else Mark.WARNING
            found += f" ({share:.1%} api_error)"
            step = "repeat the run's command to retry them; unjudged in run.json has the reasons"
        yield Result(mark, found, step, name)


def _canaries(evidence: Evidence) -> Iterator[Result]:
    canaries = evidence.record.canaries
    if canaries is None:
        step = "set judge.canaries=true, and judge again (plumb rejudge RUN)"
        yield warning("none were sent", step)
        return
    sent = sum(one.sent for one in canaries.sandboxes)
    right = sum(one.right for one in canaries.sandboxes)
    found = f"{right} of {sent} got the expected verdict"
    if canaries.distrust:
        step = "fix the sandbox, check it with plumb doctor, then plumb rejudge RUN"
        yield failure(f"{found}: {canaries.distrust[0]}", step)
    elif canaries.lost or any(one.unjudged for one in canaries.sandboxes):
        lost = f"{found}, {canaries.lost} rounds lost"
        yield warning(lost, "check the sandboxes with plumb doctor")
    else:
        yield passed(found)


def _judge(evidence: Evidence) -> Iterator[Result]:
    """What the verdicts follow: rules, interpreter, packages, processor."""
    record, rules = evidence.record, evidence.config.judge.rules
    found = []
    if rules != RULES:
        found.append(f"judged by rules {rules}, the present ones are {RULES}")
    first = next(iter(record.environments), None)
    for other in record.environments[1:]:
        differences = record.environments[0].deciding(other)
        found += [f"{what} is {one} and {two}" for what, one, two in differences]
    if found:
        yield warning("; ".join(found), REJUDGE)
    if record.sandbox is not None and record.sandbox.lacking:
        lacking = f"programs cannot import {', '.join(record.sandbox.lacking)}"
        yield warning(lacking, "judge again without PLUMBLINE_SANDBOX_PYTHON")
    elif not found:
        yield passed(f"rules {rules}, {first.describe()}" if first else f"rules {rules}")


def _metrics(evidence: Evidence) -> Iterator[Result]:
    for name in evidence.datasets:
        metrics = evidence.summary.get(name)
        if metrics is None:
            yield failure("no summary", "repeat the run's command: it publishes the summary", name)
        else:
            yield _of_metrics(name, metrics)


def _of_metrics(name: str, metrics: Metrics) -> Result:
    none_solved = not metrics.get("accepted_at_1")
    wanted = [metric for kind in _KINDS_OF_METRICS.values() for metric in kind]
    absent = [metric for metric in wanted if metric not in metrics]
    if absent:
        step = "publish the run with this version: repeat its command"
        return failure(f"missing: {', '.join(absent)}", step, name)
    unknown = [
        metric
        for metric in wanted
        if metrics[metric] is None and not (none_solved and metric.startswith(_PER_SOLVED))
    ]
    if unknown:
        step = "repeat the run's command if samples have no verdict"
        if any("token" in metric or "time" in metric for metric in unknown):
            step = (
                "recorded completions need output_tokens (or data.tokenizer) and gen_time; a "
                "server must report usage"
            )
        return warning(f"unknown: {', '.join(unknown)}", step, name)
    found = f"{', '.join(_KINDS_OF_METRICS)}: all {len(wanted)}"
    return passed(found + (", none per solved" if none_solved else ""), name)


def _data(evidence: Evidence) -> Iterator[Result]:
    locked = evidence.record.data_lock
    if locked is None or locked.path is None:
        step = "set data.lock=data_manifests/manifest.lock.json"
        yield warning("not checked against a lock", step)
    elif locked.differences:
        more = f" (and {len(locked.differences) - 1} more)" if len(locked.differences) > 1 else ""
        step = "run again without --allow-unlocked, on data as plumb data prepare wrote them"
        yield warning(f"unlocked: {locked.differences[0]}{more}", step)
    else:
        yield passed(f"as in {locked.path}")


def _manifests(evidence: Evidence) -> Iterator[Result]:
    data = evidence.data
    if isinstance(data, str):
        yield warning(f"not at hand: {data}", "name the data files with --data")
        return
    for line in data.differences:
        yield failure(line, _PREPARE)
    for name in evidence.datasets:
        listed = data.problems.get(name)
        if listed is None:
            yield failure(f"no {name}.jsonl in {data.folder}", _PREPARE, name)
            continue
        unlisted = sorted(evidence.answers.get(name, AnswerCounts()).problems - listed)
        if unlisted:
            found = f"{len(unlisted)} problems of the run are not listed ({unlisted[0]}, …)"
            yield failure(found, _PREPARE, name)
        else:
            yield passed(f"{len(listed)} problems listed", name)


def _audit(evidence: Evidence) -> Iterator[Result]:
    data = evidence.data
    if isinstance(data, str):
        yield warning(f"not at hand: {data}", "name the data files with --data")
        return
    if overlaps := data.open_overlaps:
        found = f"{len(overlaps)} unreviewed overlaps between sets ({overlaps[0]}, …)"
        step = "remove them, or list them in a file for --allow, then plumb data prepare"
        yield failure(found, step)
    if not data.has_report:
        step = "plumb data prepare --config configs/data.yaml"
        yield failure(f"no audit_report.md in {data.folder}", step)
    if not data.training:
        found = "no training set among the manifests: leakage from training data was not checked"
        step = "prepare one with role: train, or plumb data contamination --against CORPUS"
        yield warning(found, step)
    if data.has_report and not data.open_overlaps:
        yield passed(f"no unreviewed overlap between sets, {data.reviewed_overlaps} reviewed")


def _qa_logs(evidence: Evidence) -> Iterator[Result]:
    for name in BASELINE_SETS:
        wanted, log = sum(QUOTAS[name].values()), evidence.record.qa_logs.get(name)
        if log is None:
            step = "repeat the run's command: it writes the QA logs"
            if name not in evidence.datasets:
                step = f"add {name}.parquet to data.eval_files"
            found = f"0 of {wanted}"
            yield failure(found, step, name)
            continue
        records = evidence.qa_records.get(log.file, 0)
        found, mark, step = f"{records} of {wanted}", Mark.PASS, ""
        if filled := sum(log.filled.values()):
            found += f" ({filled} in place of rarer statuses)"
        if records < wanted:
            mark, step = Mark.FAILURE, "run all problems of the set"
            if sum(log.wanted.values()) < wanted:
                step = f"raise qa_logs.quotas.{name} to {wanted}, and repeat the run's command"
            elif records < sum(log.chosen.values()):
                step = f"repeat the run's command: it writes {log.file} again"
        yield Result(mark, found, step, name)


def _wandb(evidence: Evidence) -> Iterator[Result]:
    logged = evidence.record.wandb
    if not evidence.config.wandb.enabled and logged is None:
        step = "repeat the run's command with wandb.enabled=true, or leave it out: --without wandb"
        yield failure("not logged", step)
    elif logged is None or logged.mode == "none":
        reason = (logged and (logged.online_error or logged.offline_error)) or "no record of it"
        step = "repeat the run's command when that is fixed: it logs again"
        yield failure(f"not logged: {reason}", step)
    elif logged.mode == "offline":
        step = logged.sync or "wandb sync the folder wandb/offline-run-…"
        yield warning("logged offline, not uploaded", step)
    else:
        yield passed(logged.url or "logged")


def _protocol(evidence: Evidence) -> Iterator[Result]:
    ours, baseline = evidence.config.protocol().leaves, Config().protocol().leaves
    differing = [path for path in _PROTOCOL if ours.get(path) != baseline.get(path)]
    for path in differing:
        value = shown(baseline.get(path))
        found = f"{path} is {shown(ours.get(path))}, the baseline's {value}"
        yield warning(found, f"run with {path}={value}")
    record = evidence.record
    recorded = record.completions is not None or evidence.config.generation.backend == "replay"
    if recorded and record.parent is None:
        step = "generate them: plumb run --base-url URL --model NAME"
        yield warning("recorded answers: how they were generated is not known", step)
    elif not differing:
        yield passed("greedy, one answer per problem")


_RULES: Mapping[Check, Rule] = {
    Check.STATE: _state,
    Check.SETS: _sets,
    Check.VERDICTS: _verdicts,
    Check.CANARIES: _canaries,
    Check.JUDGE: _judge,
    Check.METRICS: _metrics,
    Check.DATA: _data,
    Check.MANIFESTS: _manifests,
    Check.AUDIT: _audit,
    Check.QA_LOGS: _qa_logs,
    Check.WANDB: _wandb,
    Check.PROTOCOL: _protocol,
    **SIGNS,
}


def _findings(rules: Mapping[Check, Rule], evidence: Evidence) -> list[AcceptanceFinding]:
    return [
        AcceptanceFinding(check, *result)
        for check, rule in rules.items()
        for result in rule(evidence)
    ]
