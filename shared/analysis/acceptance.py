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
    Rule,
)
from shared.analysis.silent_failures import SIGNS
from shared.analysis.statistics import Metrics, ratio
from shared.config import QUOTAS, RULES, Config
from shared.environment import REJUDGE
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
    findings = [
        one for check, rule in _RULES.items() if check not in without for one in rule(evidence)
    ]
    marks = [one.mark for one in findings]
    outcome = next((mark for mark in (Mark.FAILURE, Mark.WARNING) if mark in marks), Mark.PASS)
    return AcceptanceReport(evidence.record.run, folder, outcome, findings)


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
    elif record.stopped:
        step = "run all problems, without --until-decided, into another folder"
        yield AcceptanceFinding(Check.STATE, Mark.FAILURE, record.stopped.described, step)
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


def _judge(evidence: Evidence) -> Iterator[AcceptanceFinding]:
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
        yield AcceptanceFinding(Check.JUDGE, Mark.WARNING, "; ".join(found), REJUDGE)
    if record.sandbox is not None and record.sandbox.lacking:
        text = f"programs cannot import {', '.join(record.sandbox.lacking)}"
        step = "judge again without PLUMBLINE_SANDBOX_PYTHON"
        yield AcceptanceFinding(Check.JUDGE, Mark.WARNING, text, step)
    elif not found:
        text = f"rules {rules}, {first.describe()}" if first else f"rules {rules}"
        yield AcceptanceFinding(Check.JUDGE, Mark.PASS, text)


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
        step = "remove them, or list them in a file for --allow, then plumb data prepare"
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
    Check.FINAL_SETS: _final_sets,
    **SIGNS,
}
