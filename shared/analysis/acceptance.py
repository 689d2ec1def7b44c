"""Acceptance of a baseline run: what it needs, with the signs of silent failures.

Each rule yields findings: pass, warning or failure, the figure, and the next step. The rules are
functions of :class:`Evidence`; docs/acceptance.md has them with their limits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.analysis.catalogue import Group, keys
from shared.analysis.evidence import (
    BASELINE_SETS,
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
from shared.analysis.silent_failures import SIGNS
from shared.analysis.statistics import Metrics, ratio
from shared.canaries import REJUDGE
from shared.config import QUOTAS, RULES, Config
from shared.protocol import shown
from shared.run_record import RunState

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
    findings = check_all(rules, evidence)
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
