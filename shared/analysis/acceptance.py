"""Acceptance of a baseline run: what it needs, and the signs of failures that nobody notices.

Each rule yields findings: pass, warning or failure, the figure, and the next step. The rules are
functions of :class:`Evidence`; docs/acceptance.md has them with their limits.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from shared.analysis.model_size import (
    METRICS,
    ModelSize,
    TypicalMetric,
    TypicalRange,
    typical_range,
)
from shared.analysis.statistics import Metrics, ratio, wilson_interval
from shared.config import Config
from shared.final_sets import FinalSetUse
from shared.protocol import shown
from shared.result_config import QUOTAS
from shared.run_record import RunRecord, RunState
from shared.schemas import Generation, Verdict
from shared.statuses import FinalStatus, VerdictDetail

BASELINE_SETS: Mapping[str, int] = {
    "codecontests_valid": 117,
    "codecontests_test": 165,
    "humaneval": 164,
    "mbpp_reg": 200,
}
"""Data sets of the baseline, with the number of their problems."""
_LEFT_OUT = 0.05
"""Share of a set's problems that may be missing: rows without tests, ``data.exclude_quality``."""
_UNJUDGED = 0.01
"""Share of samples without a verdict from which infrastructure failed systematically."""
_FEW = 20
"""Judged samples below which a small share tells nothing."""
_FEW_STATUSES = 10
"""Judged samples below which it may be chance that almost all have one status."""
# Shares of the judged samples above which something is wrong.
_ONE_STATUS = 0.9
_TRUNCATED = 0.05
_WITHOUT_CODE = 0.1
_TIMEOUTS = 0.2

_KINDS_OF_METRICS: Mapping[str, tuple[str, ...]] = {
    "quality": ("accepted_at_1", "pass_ratio_mean", "pass_ratio_p50", "pass_ratio_p90",
                "exec_success_rate", "total_problems"),
    "cost": ("avg_total_gen_tokens", "avg_gen_time", "avg_total_judge_time",
             "p95_total_judge_time", "throughput", "cost_per_solved_tokens",
             "cost_per_solved_judge_time", "cost_per_solved_time"),
    "error": ("syntax_error_rate", "runtime_error_rate", "timeout_rate", "wrong_answer_rate",
              "empty_output_rate"),
}  # fmt: skip
_PER_SOLVED = "cost_per_solved_"
_PROTOCOL = (
    "actor_rollout_ref.rollout.temperature", "actor_rollout_ref.rollout.top_p",
    "actor_rollout_ref.rollout.top_k", "actor_rollout_ref.rollout.do_sample",
    "actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.prompt_length",
    "actor_rollout_ref.rollout.response_length", "sandbox.timeout", "sandbox.memory_limit_mb",
    "judge.language",
)  # fmt: skip
"""The leaves that the baseline fixes; its values are the defaults."""
_HIGHER_IS_BETTER = ("accepted_at_1", "pass_ratio_mean", "exec_success_rate")
_NO_CODE = (VerdictDetail.NO_CODE_BLOCK, VerdictDetail.EMPTY)


class Mark(StrEnum):
    """Outcome of a check, or of all of them."""

    PASS = "pass"
    WARNING = "warning"
    FAILURE = "failure"


class Check(StrEnum):
    """Subject of a check; the value is its name in tables, JSON and ``--without``."""

    STATE = "state"
    SETS = "sets"
    VERDICTS = "verdicts"
    CANARIES = "canaries"
    METRICS = "metrics"
    DATA = "data"
    MANIFESTS = "manifests"
    AUDIT = "audit"
    QA_LOGS = "qa-logs"
    WANDB = "wandb"
    PROTOCOL = "protocol"
    FINAL_SETS = "final-sets"
    MODEL = "model"
    ZERO = "accepted"
    ONE_STATUS = "one-status"
    TRUNCATED = "truncated"
    WITHOUT_CODE = "without-code"
    TIMEOUTS = "time-outs"
    TYPICAL = "typical-range"


SILENT_FAILURES = (
    Check.MODEL,
    Check.ZERO,
    Check.ONE_STATUS,
    Check.TRUNCATED,
    Check.WITHOUT_CODE,
    Check.TIMEOUTS,
    Check.TYPICAL,
)


@dataclass(frozen=True, slots=True)
class AcceptanceFinding:
    """Outcome of a check, for one data set or (``dataset`` empty) the run.

    ``found`` is the figure, ``next_step`` a command or config key; empty if the check passed.
    """

    check: Check
    mark: Mark
    found: str
    next_step: str = ""
    dataset: str = ""


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


@dataclass
class AnswerCounts:
    """Counts over the samples of one data set.

    ``finished``: samples of which the server said why they end, ``truncated`` of them at the limit
    of tokens.
    """

    statuses: Counter[FinalStatus] = field(default_factory=Counter)
    finished: int = 0
    truncated: int = 0
    without_code: int = 0
    problems: set[str] = field(default_factory=set)

    @property
    def judged(self) -> int:
        return self.statuses.total() - self.statuses[FinalStatus.API_ERROR]

    def add(self, verdict: Verdict, generation: Generation | None) -> None:
        self.problems.add(verdict.problem_id)
        self.statuses[verdict.final_status] += 1
        self.without_code += (
            verdict.detail in _NO_CODE or verdict.final_status is FinalStatus.EMPTY_OUTPUT
        )
        if generation is not None and generation.finish_reason is not None:
            self.finished += 1
            self.truncated += generation.finish_reason == "length"


@dataclass(frozen=True, slots=True)
class PreparedData:
    """What lies beside the run's data files.

    Attributes:
        folder: Folder of lock, manifests and audit.
        problems: Ids of the manifests' problems by data set.
        training: Training sets among them.
        open_overlaps: Pairs of similar problems of different sets that nobody reviewed.
        reviewed_overlaps: Number of the other pairs.
        has_report: Whether there is an audit report.
        differences: One line for each of these files that is not as in the lock.
    """

    folder: str
    problems: Mapping[str, frozenset[str]]
    training: Sequence[str]
    open_overlaps: Sequence[str]
    reviewed_overlaps: int
    has_report: bool
    differences: Sequence[str]


@dataclass(frozen=True)
class Evidence:
    """All that is known of a run.

    Attributes:
        record: ``run.json``.
        summary: ``{dataset: {metric: value}}``; empty before the run is published.
        answers: Counts by data set.
        unreadable: Messages about files of the run that cannot be read.
        qa_records: Number of readable records by file of ``run.json``'s ``qa_logs``.
        data: What lies beside the data files, or why it is not at hand.
        final_sets: The runs on the run's final sets.
        size: Size of the model; None if unknown.
    """

    record: RunRecord
    summary: Mapping[str, Metrics]
    answers: Mapping[str, AnswerCounts] = field(default_factory=dict)
    unreadable: Sequence[str] = ()
    qa_records: Mapping[str, int] = field(default_factory=dict)
    data: PreparedData | str = "not looked for"
    final_sets: Sequence[FinalSetUse] = ()
    size: ModelSize | None = None

    @property
    def config(self) -> Config:
        return self.record.config

    @property
    def datasets(self) -> list[str]:
        """The run's data sets, those of the baseline first and in its order."""
        own = [one.dataset for one in self.record.datasets]
        return [*(name for name in BASELINE_SETS if name in own),
                *(name for name in own if name not in BASELINE_SETS)]  # fmt: skip


def report(evidence: Evidence, folder: str, without: Sequence[Check] = ()) -> AcceptanceReport:
    """Check everything but ``without``."""
    findings = [
        one for check, rule in _RULES.items() if check not in without for one in rule(evidence)
    ]
    marks = [one.mark for one in findings]
    outcome = next((mark for mark in (Mark.FAILURE, Mark.WARNING) if mark in marks), Mark.PASS)
    return AcceptanceReport(evidence.record.run, folder, outcome, findings)


def silent_failures(evidence: Evidence) -> list[AcceptanceFinding]:
    """The signs of silent failures in a run that has just ended, which need not be a baseline."""
    return [
        one
        for check in SILENT_FAILURES
        for one in _RULES[check](evidence)
        # All answers may be right: they may be reference solutions. The size may be unknown.
        if one.mark is Mark.FAILURE
        or (one.mark is Mark.WARNING and one.dataset and not _all_right(evidence, one))
    ]


def _all_right(evidence: Evidence, finding: AcceptanceFinding) -> bool:
    counts = evidence.answers[finding.dataset]
    return finding.check is Check.ONE_STATUS and _most_common(counts) is FinalStatus.SUCCESS


# The baseline's needs


def _state(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    record = evidence.record
    for line in evidence.unreadable:
        step = "publish the run again by repeating its command"
        yield AcceptanceFinding(Check.STATE, Mark.FAILURE, line, step)
    if record.state is RunState.FAILED:
        step = "make room or fix the folder, then repeat the run's command: it only publishes"
        text = "failed: the artifacts could not be written"
        yield AcceptanceFinding(Check.STATE, Mark.FAILURE, text, step)
    elif not record.state.published:
        step = "repeat the run's command to finish it"
        yield AcceptanceFinding(Check.STATE, Mark.FAILURE, str(record.state), step)
    elif not evidence.unreadable:
        yield AcceptanceFinding(Check.STATE, Mark.PASS, str(record.state))


def _sets(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    planned = {one.dataset: one.problems for one in evidence.record.datasets}
    for name, wanted in BASELINE_SETS.items():
        if name not in planned:
            step = f"add {name}.parquet to data.eval_files (plumb data prepare makes it)"
            yield AcceptanceFinding(Check.SETS, Mark.FAILURE, "not in the run", step, name)
            continue
        found, mark, step = f"{planned[name]} of {wanted} problems", Mark.PASS, ""
        limit = evidence.config.data.limit
        if planned[name] != wanted:
            lacks = wanted - planned[name]
            few = 0 < lacks <= _LEFT_OUT * wanted
            mark = Mark.WARNING if few else Mark.FAILURE
            step = "plumb data prepare --config configs/data.yaml, and run on its files"
            if few:
                step = f"see dropped_{name}.jsonl and data.exclude_quality for those left out"
            if limit is not None and limit <= planned[name]:
                found, step = f"{found} (data.limit={limit})", "run with data.limit=null"
        yield AcceptanceFinding(Check.SETS, mark, found, step, name)


def _verdicts(evidence: Evidence) -> Iterator[AcceptanceFinding]:
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
        yield AcceptanceFinding(Check.VERDICTS, mark, found, step, name)


def _canaries(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    canaries, check = evidence.record.canaries, Check.CANARIES
    if canaries is None:
        step = "set judge.canaries.enabled=true, and judge again (plumb rejudge RUN)"
        yield AcceptanceFinding(check, Mark.WARNING, "none were sent", step)
        return
    sent = sum(one.sent for one in canaries.sandboxes)
    right = sum(one.right for one in canaries.sandboxes)
    found = f"{right} of {sent} judged as they must be"
    if canaries.distrust:
        step = "mend the sandbox, check it with plumb doctor, then plumb rejudge RUN"
        text = f"{found}: {canaries.distrust[0]}"
        yield AcceptanceFinding(check, Mark.FAILURE, text, step)
    elif canaries.lost or any(one.unjudged for one in canaries.sandboxes):
        step = "check the sandboxes with plumb doctor"
        text = f"{found}, {canaries.lost} rounds lost"
        yield AcceptanceFinding(check, Mark.WARNING, text, step)
    else:
        yield AcceptanceFinding(check, Mark.PASS, found)


def _metrics(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    for name in evidence.datasets:
        metrics = evidence.summary.get(name)
        if metrics is None:
            step = "repeat the run's command: it publishes the summary"
            yield AcceptanceFinding(Check.METRICS, Mark.FAILURE, "no summary", step, name)
            continue
        yield _of_metrics(name, metrics)


def _of_metrics(name: str, metrics: Metrics) -> AcceptanceFinding:
    none_solved = not metrics.get("accepted_at_1")
    wanted = [metric for kind in _KINDS_OF_METRICS.values() for metric in kind]
    absent = [metric for metric in wanted if metric not in metrics]
    unknown = [
        metric
        for metric in wanted
        if metric in metrics
        and metrics[metric] is None
        and not (none_solved and metric.startswith(_PER_SOLVED))
    ]
    kinds = ", ".join(_KINDS_OF_METRICS)
    if absent:
        found = f"missing: {', '.join(absent)}"
        step = "publish the run with this version: repeat its command"
        return AcceptanceFinding(Check.METRICS, Mark.FAILURE, found, step, name)
    if unknown:
        step = "repeat the run's command if samples have no verdict"
        if any("token" in metric or "time" in metric for metric in unknown):
            step = (
                "recorded completions need output_tokens (or data.tokenizer) and gen_time; a "
                "server must report usage"
            )
        found = f"unknown: {', '.join(unknown)}"
        return AcceptanceFinding(Check.METRICS, Mark.WARNING, found, step, name)
    found = f"{kinds}: all {len(wanted)}" + (", none per solved" if none_solved else "")
    return AcceptanceFinding(Check.METRICS, Mark.PASS, found, dataset=name)


def _data(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    locked = evidence.record.data_lock
    if locked is None or locked.path is None:
        step = "set data.lock=data_manifests/manifest.lock.json"
        text = "not checked against a lock"
        yield AcceptanceFinding(Check.DATA, Mark.WARNING, text, step)
    elif locked.differences:
        more = f" (and {len(locked.differences) - 1} more)" if len(locked.differences) > 1 else ""
        step = "run again without --allow-unlocked, on data as plumb data prepare wrote them"
        text = f"unlocked: {locked.differences[0]}{more}"
        yield AcceptanceFinding(Check.DATA, Mark.WARNING, text, step)
    else:
        yield AcceptanceFinding(Check.DATA, Mark.PASS, f"as in {locked.path}")


def _manifests(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    data = evidence.data
    if isinstance(data, str):
        step = "name the data files with --data"
        yield AcceptanceFinding(Check.MANIFESTS, Mark.WARNING, f"not at hand: {data}", step)
        return
    prepare = "plumb data prepare --config configs/data.yaml, and run on its files"
    for line in data.differences:
        yield AcceptanceFinding(Check.MANIFESTS, Mark.FAILURE, line, prepare)
    for name in evidence.datasets:
        listed = data.problems.get(name)
        if listed is None:
            found = f"no {name}.jsonl in {data.folder}"
            yield AcceptanceFinding(Check.MANIFESTS, Mark.FAILURE, found, prepare, name)
            continue
        unlisted = sorted(evidence.answers.get(name, AnswerCounts()).problems - listed)
        if unlisted:
            found = f"{len(unlisted)} problems of the run are not listed ({unlisted[0]}, …)"
            yield AcceptanceFinding(Check.MANIFESTS, Mark.FAILURE, found, prepare, name)
        else:
            found = f"{len(listed)} problems listed"
            yield AcceptanceFinding(Check.MANIFESTS, Mark.PASS, found, dataset=name)


def _audit(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    data, check = evidence.data, Check.AUDIT
    if isinstance(data, str):
        step = "name the data files with --data"
        yield AcceptanceFinding(check, Mark.WARNING, f"not at hand: {data}", step)
        return
    if data.open_overlaps:
        shown_pair = data.open_overlaps[0]
        found = f"{len(data.open_overlaps)} unreviewed overlaps between sets ({shown_pair}, …)"
        step = "remove them, or review them for checks.allow, then plumb data prepare"
        yield AcceptanceFinding(check, Mark.FAILURE, found, step)
    if not data.has_report:
        step = "plumb data prepare --config configs/data.yaml"
        found = f"no audit_report.md in {data.folder}"
        yield AcceptanceFinding(check, Mark.FAILURE, found, step)
    if not data.training:
        step = "prepare one with role: train, or plumb data contamination --against CORPUS"
        found = "no training set among the manifests: leakage from training data was not checked"
        yield AcceptanceFinding(check, Mark.WARNING, found, step)
    if data.has_report and not data.open_overlaps:
        found = f"no unreviewed overlap between sets, {data.reviewed_overlaps} reviewed"
        yield AcceptanceFinding(check, Mark.PASS, found)


def _qa_logs(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    for name in BASELINE_SETS:
        wanted, log = QUOTAS[name].total, evidence.record.qa_logs.get(name)
        if log is None:
            step = "repeat the run's command: it writes the QA logs"
            if name not in evidence.datasets:
                step = f"add {name}.parquet to data.eval_files"
            found = f"0 of {wanted}"
            yield AcceptanceFinding(Check.QA_LOGS, Mark.FAILURE, found, step, name)
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
        yield AcceptanceFinding(Check.QA_LOGS, mark, found, step, name)


def _wandb(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    logged, check = evidence.record.wandb, Check.WANDB
    if not evidence.config.wandb.enabled and logged is None:
        step = "repeat the run's command with wandb.enabled=true, or leave it out: --without wandb"
        yield AcceptanceFinding(check, Mark.FAILURE, "not logged", step)
    elif logged is None or logged.mode == "none":
        reason = (logged and (logged.online_error or logged.offline_error)) or "no record of it"
        step = "repeat the run's command when that is mended: it logs again"
        yield AcceptanceFinding(check, Mark.FAILURE, f"not logged: {reason}", step)
    elif logged.mode == "offline":
        step = logged.sync or "wandb sync the folder wandb/offline-run-…"
        yield AcceptanceFinding(check, Mark.WARNING, "logged offline, not uploaded", step)
    else:
        yield AcceptanceFinding(check, Mark.PASS, logged.url or "logged")


def _protocol(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    check, record = Check.PROTOCOL, evidence.record
    ours, baseline = evidence.config.protocol().leaves, Config().protocol().leaves
    for path in _PROTOCOL:
        if ours.get(path) != baseline.get(path):
            found = f"{path} is {shown(ours.get(path))}, the baseline's {shown(baseline.get(path))}"
            step = f"run with {path}={shown(baseline.get(path))}"
            yield AcceptanceFinding(check, Mark.WARNING, found, step)
    recorded = record.completions is not None or evidence.config.generation.backend == "replay"
    if recorded and record.parent is None:
        found = "recorded answers: how they were generated is not known"
        step = "generate them: plumb run --base-url URL --model NAME"
        yield AcceptanceFinding(check, Mark.WARNING, found, step)
    elif all(ours.get(path) == baseline.get(path) for path in _PROTOCOL):
        yield AcceptanceFinding(check, Mark.PASS, "greedy, one answer per problem")


def _final_sets(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    final = evidence.config.data.final_sets
    others = [name for name in evidence.datasets if name not in final]
    for use in evidence.final_sets:
        where = " or ".join(others) or "a set that is not final"
        yield AcceptanceFinding(
            Check.FINAL_SETS,
            Mark.WARNING if use.tuned else Mark.PASS,
            use.describe(),
            f"choose on {where}, and report the final set once" if use.tuned else "",
            use.dataset,
        )


# Signs of silent failures


def _model(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    if _looks_random(evidence.record.generator):
        found = "the server's self-check says random weights"
        step = "set actor_rollout_ref.rollout.load_format=auto, and check the model's files"
        yield AcceptanceFinding(Check.MODEL, Mark.FAILURE, found, step)
    elif evidence.size is None:
        name = evidence.record.served_model
        whose = f"the size of {name!r}" if name else "the model"
        found = f"{whose} is unknown, so no typical ranges apply"
        step = "give its billions of parameters: plumb accept RUN --size 7"
        yield AcceptanceFinding(Check.MODEL, Mark.WARNING, found, step)
    else:
        name = evidence.record.served_model or "model"
        yield AcceptanceFinding(Check.MODEL, Mark.PASS, f"{name}, {evidence.size}")


def _looks_random(generator: object) -> bool:
    if not isinstance(generator, dict):
        return False
    return generator.get("looks_random") is True or any(map(_looks_random, generator.values()))


def _zero(evidence: Evidence) -> Iterator[AcceptanceFinding]:
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
        yield AcceptanceFinding(Check.ZERO, mark, found, step, name)


def _one_status(evidence: Evidence) -> Iterator[AcceptanceFinding]:
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
        yield AcceptanceFinding(Check.ONE_STATUS, mark, found, step, name)


_STEPS: Mapping[FinalStatus, str] = {
    FinalStatus.SUCCESS: "look for the set in the training data: plumb data contamination",
    FinalStatus.WRONG_ANSWER: "compare outputs in qa_logs: judge.checker, format of the tests",
    FinalStatus.RUNTIME_ERROR: "read stderr in qa_logs: a missing module, sandbox.memory_limit_mb",
    FinalStatus.TIMEOUT: "check the sandbox with plumb doctor; raise sandbox.timeout",
    FinalStatus.SYNTAX_ERROR: "read answers in qa_logs: judge.extraction, the chat template",
    FinalStatus.EMPTY_OUTPUT: "read answers in qa_logs: the chat template, generation.stop",
}


def _expected(evidence: Evidence, name: str, status: FinalStatus) -> bool:
    """Whether almost all answers are right because that is typical of the model's size."""
    if status is not FinalStatus.SUCCESS or evidence.size is None:
        return False
    typical = typical_range(evidence.size, name, "accepted_at_1")
    return typical is not None and typical.high > _ONE_STATUS


def _truncated(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    for name, one in _judged(evidence):
        if not one.finished:
            found = "not recorded why answers end"
            yield AcceptanceFinding(Check.TRUNCATED, Mark.PASS, found, dataset=name)
            continue
        length = evidence.config.actor_rollout_ref.rollout.response_length
        step = f"raise actor_rollout_ref.rollout.response_length ({length}), or set generation.stop"
        yield _share(Check.TRUNCATED, name, one.truncated, one.finished, _TRUNCATED, step)


def _without_code(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    for name, one in _judged(evidence):
        step = "read answers in qa_logs: the prompt (data.templates), judge.extraction"
        yield _share(Check.WITHOUT_CODE, name, one.without_code, one.judged, _WITHOUT_CODE, step)


def _timeouts(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    for name, one in _judged(evidence):
        step = "check the sandbox with plumb doctor; judge again with a longer sandbox.timeout"
        yield _share(
            Check.TIMEOUTS, name, one.statuses[FinalStatus.TIMEOUT], one.judged, _TIMEOUTS, step
        )


def _typical(evidence: Evidence) -> Iterator[AcceptanceFinding]:
    if evidence.size is None:
        return
    for name in evidence.datasets:
        within = known = 0
        for metric in METRICS:
            typical = typical_range(evidence.size, name, metric)
            metrics = evidence.summary.get(name, {})
            value, interval = metrics.get(metric), metrics.get(f"{metric}_ci95")
            if typical is None or not isinstance(interval, list) or isinstance(value, list | None):
                continue
            known += 1
            if typical.excludes(interval):
                yield _unusual(name, metric, value, typical)
            else:
                within += 1
        if within or not known:
            found = f"{within} of {known} figures within" if known else "no range is known"
            yield AcceptanceFinding(Check.TYPICAL, Mark.PASS, found, dataset=name)


def _unusual(
    dataset: str, metric: TypicalMetric, value: float, typical: TypicalRange
) -> AcceptanceFinding:
    usual = f"{100 * typical.low:.0f}-{100 * typical.high:.0f} %"
    low = (value < typical.low) == (metric in _HIGHER_IS_BETTER)
    step = "read answers in qa_logs: the chat template, extraction, load_format"
    if not low:
        step = "look for the set in the training data: plumb data contamination"
    return AcceptanceFinding(
        Check.TYPICAL,
        Mark.WARNING,
        f"{metric} {value:.1%}; {typical.of}: {usual}",
        step,
        dataset,
    )


def _judged(evidence: Evidence) -> Iterator[tuple[str, AnswerCounts]]:
    for name in evidence.datasets:
        if (counts := evidence.answers.get(name)) and counts.judged:
            yield name, counts


def _most_common(counts: AnswerCounts) -> FinalStatus:
    judged = [status for status in FinalStatus if status is not FinalStatus.API_ERROR]
    return max(judged, key=lambda status: counts.statuses[status])


def _share(
    check: Check, dataset: str, part: int, whole: int, limit: float, step: str
) -> AcceptanceFinding:
    """A share of answers that is suspicious above a limit."""
    share = ratio(part, whole) or 0.0
    # Of few answers only a share that is hardly chance tells something.
    least, _ = wilson_interval(share, whole) or (0.0, 1.0)
    suspicious = share > limit and (whole >= _FEW or least > limit)
    found = f"{part} of {whole}" + (f" ({share:.1%})" if part else "")
    found += f", above {limit:.0%}" if suspicious else ""
    mark = Mark.WARNING if suspicious else Mark.PASS
    return AcceptanceFinding(check, mark, found, step if suspicious else "", dataset)


_RULES: Mapping[Check, Callable[[Evidence], Iterator[AcceptanceFinding]]] = {
    Check.STATE: _state,
    Check.SETS: _sets,
    Check.VERDICTS: _verdicts,
    Check.CANARIES: _canaries,
    Check.METRICS: _metrics,
    Check.DATA: _data,
    Check.MANIFESTS: _manifests,
    Check.AUDIT: _audit,
    Check.QA_LOGS: _qa_logs,
    Check.WANDB: _wandb,
    Check.PROTOCOL: _protocol,
    Check.FINAL_SETS: _final_sets,
    Check.MODEL: _model,
    Check.ZERO: _zero,
    Check.ONE_STATUS: _one_status,
    Check.TRUNCATED: _truncated,
    Check.WITHOUT_CODE: _without_code,
    Check.TIMEOUTS: _timeouts,
    Check.TYPICAL: _typical,
}
