"""Acceptance of a baseline run: what it needs, and signs of silent failures.

Each rule yields findings: pass, warning or failure, the figure, and the next step. The rules are
functions of :class:`Evidence`; docs/acceptance.md has them with their limits.
"""

import math
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
from shared.analysis.statistics import ratio, wilson_interval
from shared.canaries import REJUDGE
from shared.config import QUOTAS, RULES, Config
from shared.protocol import shown
from shared.run_record import RunState
from shared.statuses import FinalStatus

Result = tuple[Mark, str, str, str]
"""An outcome of a rule: mark, figure, next step and data set, as in :class:`AcceptanceFinding`."""
Rule = Callable[[Evidence], Iterator[Result]]
"""A check: yields its results, for each data set or for the run."""


def passed(figure: str, dataset: str = "") -> Result:
    return Mark.PASS, figure, "", dataset


def warning(figure: str, next_step: str, dataset: str = "") -> Result:
    return Mark.WARNING, figure, next_step, dataset


def failure(figure: str, next_step: str, dataset: str = "") -> Result:
    return Mark.FAILURE, figure, next_step, dataset


# Signs of silent failures: a run that ended well, but whose figures may not be the model's. Random
# weights, a missing chat template, an extraction that finds no code, a slow sandbox: each leaves a
# trace in the counts of the answers.


class TypicalRange(NamedTuple):
    """Typical lowest and highest share of models of some billions of parameters, ``of`` in words.

    It is for models of ``smallest`` to less than ``below`` billions.
    """

    metric: str
    datasets: tuple[str, ...]
    smallest: float
    below: float
    low: float
    high: float
    of: str


_CODE_CONTESTS, _GREEDY = ("codecontests_valid", "codecontests_test"), "7B base models, greedy"
_HUMANEVAL = ("humaneval",)
# docs/acceptance.md has the models and sources.
_TYPICAL = (
    TypicalRange("accepted_at_1", _CODE_CONTESTS, 6, 9, 0.03, 0.10, _GREEDY),
    TypicalRange("pass_ratio_mean", _CODE_CONTESTS, 6, 9, 0.10, 0.25, _GREEDY),
    TypicalRange("exec_success_rate", _CODE_CONTESTS, 6, 9, 0.50, 0.80, _GREEDY),
    TypicalRange("syntax_error_rate", _CODE_CONTESTS, 6, 9, 0.05, 0.20, _GREEDY),
    TypicalRange("timeout_rate", _CODE_CONTESTS, 6, 9, 0.05, 0.15, _GREEDY),
    TypicalRange("accepted_at_1", _HUMANEVAL, 0.3, 2, 0.10, 0.75, "models of 0.3 to 2 B"),
    TypicalRange("accepted_at_1", _HUMANEVAL, 2, 5, 0.15, 0.85, "models of 2 to 5 B"),
    TypicalRange("accepted_at_1", _HUMANEVAL, 5, 10, 0.25, 0.90, "models of 5 to 10 B"),
    TypicalRange("accepted_at_1", _HUMANEVAL, 10, 20, 0.30, 0.90, "models of 10 to 20 B"),
    TypicalRange("accepted_at_1", _HUMANEVAL, 20, 40, 0.50, 0.95, "models of 20 to 40 B"),
    TypicalRange("accepted_at_1", _HUMANEVAL, 40, math.inf, 0.55, 0.95, "models of 40 B and more"),
)

_FEW = 20
"""Judged samples below which a small share tells nothing."""
_FEW_STATUSES = 10
"""Judged samples below which it may be chance that almost all have one status."""
# Shares of the judged samples above which something is wrong.
_ONE_STATUS = 0.9
_TRUNCATED = 0.05
_NAMED = 3
"""Missing modules that a finding names."""


def silent_failures(evidence: Evidence) -> list[AcceptanceFinding]:
    """The signs of silent failures in a run that has just ended, which need not be a baseline."""

    def is_sign(finding: AcceptanceFinding) -> bool:
        if finding.mark is not Mark.WARNING or not finding.dataset:  # the size may be unknown
            return finding.mark is Mark.FAILURE
        # All answers may be right: they may be reference solutions.
        most_common = _most_common(evidence.answers[finding.dataset])
        return finding.check is not Check.ONE_STATUS or most_common is not FinalStatus.SUCCESS

    return [finding for finding in _findings(SIGNS, evidence) if is_sign(finding)]


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
    judged = dict(_judged(evidence))
    solved = any(counts.statuses[FinalStatus.SUCCESS] for counts in judged.values())
    enough = sum(counts.judged for counts in judged.values()) >= _FEW
    for name, counts in judged.items():
        accepted = counts.statuses[FinalStatus.SUCCESS]
        figure = f"{accepted} of {counts.judged} accepted"
        fails = not solved and enough
        if accepted or not (fails or counts.judged >= _FEW):
            yield passed(figure, name)
            continue
        if evidence.summary.get(name, {}).get("pass_ratio_mean") == 0:
            figure += ", and no test passed"
        step = "read answers in qa_logs: extraction, format of the tests, load_format"
        yield (failure if fails else warning)(figure, step, name)


def _one_status(evidence: Evidence) -> Iterator[Result]:
    for name, counts in _judged(evidence):
        status = _most_common(counts)
        share = ratio(counts.statuses[status], counts.judged) or 0.0
        figure = f"{status} {share:.1%}"
        few = share <= _ONE_STATUS or counts.judged < _FEW_STATUSES
        # Of some sets almost all answers are right because that is typical of the model's size.
        typical = status is FinalStatus.SUCCESS and any(
            usual.metric == "accepted_at_1" and usual.high > _ONE_STATUS
            for usual in _usual(evidence, name)
        )
        if few or typical:
            yield passed(figure, name)
        else:
            yield warning(figure, _STEPS[status], name)


_STEPS: Mapping[FinalStatus, str] = {
    FinalStatus.SUCCESS: "look for the set in the training data: plumb data contamination",
    FinalStatus.WRONG_ANSWER: "compare outputs in qa_logs: judge.checker, format of the tests",
    FinalStatus.RUNTIME_ERROR: "read stderr in qa_logs: a missing module, sandbox.memory_limit_mb",
    FinalStatus.TIMEOUT: "check the sandbox with plumb doctor; raise sandbox.timeout",
    FinalStatus.SYNTAX_ERROR: "read answers in qa_logs: the prompt, the chat template",
    FinalStatus.EMPTY_OUTPUT: "read answers in qa_logs: the chat template, generation.stop",
}


def _usual(evidence: Evidence, dataset: str) -> list[TypicalRange]:
    """The ranges for the model's size; none if that is not known."""
    size = evidence.size
    return [
        usual
        for usual in _TYPICAL
        if size is not None and dataset in usual.datasets and usual.smallest <= size < usual.below
    ]


def _truncated(evidence: Evidence) -> Iterator[Result]:
    length = evidence.config.actor_rollout_ref.rollout.response_length
    step = f"raise actor_rollout_ref.rollout.response_length ({length}), or set generation.stop"
    for name, counts in _judged(evidence):
        if counts.finished:
            yield _share(name, counts.truncated, counts.finished, _TRUNCATED, step)
        else:
            yield passed("not recorded why answers end", name)


def _shares(part: Callable[[AnswerCounts], int], limit: float, step: str) -> Rule:
    """The rule that a part of the judged answers is at most a share of them."""

    def rule(evidence: Evidence) -> Iterator[Result]:
        for name, counts in _judged(evidence):
            yield _share(name, part(counts), counts.judged, limit, step)

    return rule


def _modules(evidence: Evidence) -> Iterator[Result]:
    step = "check the sandbox's modules with plumb doctor (docs/judging.md#modules)"
    for name, counts in _judged(evidence):
        if not (lacking := counts.missing_modules):
            yield passed("no answer failed for a missing module", name)
            continue
        names = [f"{module} ({count})" for module, count in lacking.most_common(_NAMED)]
        listed = ", ".join([*names, *(["…"] if len(lacking) > _NAMED else [])])
        failed = f"{lacking.total()} of {counts.judged} failed for a missing module"
        yield warning(f"{failed}: {listed}", step, name)


def _typical(evidence: Evidence) -> Iterator[Result]:
    for name in evidence.datasets if evidence.size is not None else ():
        metrics = evidence.summary.get(name, {})
        within = compared = 0
        for metric, *_, low, high, of in _usual(evidence, name):
            value, interval = metrics.get(metric), metrics.get(f"{metric}_ci95")
            if not isinstance(interval, list) or isinstance(value, list | None):
                continue
            compared += 1
            if interval[0] <= high and interval[1] >= low:
                within += 1
                continue
            step = "look for the set in the training data: plumb data contamination"
            if (value < low) == bool(BY_KEY[metric].higher_is_better):
                step = "read answers in qa_logs: the chat template, extraction, load_format"
            usual = f"{of}: {100 * low:.0f}-{100 * high:.0f} %"
            yield warning(f"{metric} {value:.1%}; {usual}", step, name)
        if within or not compared:
            figures = f"{within} of {compared} figures within"
            yield passed(figures if compared else "no range is known", name)


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
    figure = f"{part} of {whole}" + (f" ({share:.1%})" if part else "")
    if share > limit and (whole >= _FEW or least > limit):
        return warning(f"{figure}, above {limit:.0%}", step, dataset)
    return passed(figure, dataset)


SIGNS: Mapping[Check, Rule] = {
    Check.MODEL: _model,
    Check.ZERO: _zero,
    Check.ONE_STATUS: _one_status,
    Check.TRUNCATED: _truncated,
    Check.WITHOUT_CODE: _shares(
        lambda counts: counts.without_code,
        0.1,
        "read answers in qa_logs: the prompt (data.templates)",
    ),
    Check.TIMEOUTS: _shares(
        lambda counts: counts.statuses[FinalStatus.TIMEOUT],
        0.2,
        "check the sandbox with plumb doctor; judge again with a longer sandbox.timeout",
    ),
    Check.MODULES: _modules,
    Check.TYPICAL: _typical,
}
"""The rules by their check, in the order of a report."""


# Rules about the run


_LEFT_OUT = 0.05
"""Share of a set's problems that may be missing: rows without tests, ``data.exclude_quality``."""
_UNJUDGED = 0.01
"""Share of samples without a verdict from which infrastructure failed systematically."""
_GROUPS = (Group.QUALITY, Group.COST, Group.ERROR)
_PLANNED = [key for group in _GROUPS for key in keys(group, planned=True)]
_PREPARE_DATA = "plumb data prepare --config configs/data.yaml"
_PREPARE = f"{_PREPARE_DATA}, and run on its files"
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
        figure = (finding.check for finding in self.findings if finding.mark is self.outcome)
        return list(dict.fromkeys(figure))


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
    planned = {recorded.dataset: recorded.problems for recorded in evidence.record.datasets}
    limit = evidence.config.data.limit
    for name, wanted in BASELINE_SETS.items():
        if name not in planned:
            step = f"add {name}.parquet to data.eval_files (plumb data prepare makes it)"
            yield failure("not in the run", step, name)
            continue
        figure, lacks = f"{planned[name]} of {wanted} problems", wanted - planned[name]
        if not lacks:
            yield passed(figure, name)
            continue
        few, step = 0 < lacks <= _LEFT_OUT * wanted, _PREPARE
        if few:
            step = f"see dropped_{name}.jsonl and data.exclude_quality for those left out"
        if limit is not None and limit <= planned[name]:
            figure, step = f"{figure} (data.limit={limit})", "run with data.limit=null"
        yield (warning if few else failure)(figure, step, name)


def _verdicts(evidence: Evidence) -> Iterator[Result]:
    samples = {recorded.dataset: recorded.samples for recorded in evidence.record.datasets}
    step = "repeat the run's command to retry them; unjudged in run.json has the reasons"
    for name in evidence.datasets:
        judged = evidence.answers.get(name, AnswerCounts()).judged
        share = ratio(samples[name] - judged, samples[name]) or 0.0
        figure = f"{judged} of {samples[name]} judged"
        if share > 0:
            mark = failure if share > _UNJUDGED else warning
            yield mark(f"{figure} ({share:.1%} api_error)", step, name)
        else:
            yield passed(figure, name)


def _canaries(evidence: Evidence) -> Iterator[Result]:
    canaries = evidence.record.canaries
    if canaries is None:
        step = "set judge.canaries=true, and judge again (plumb rejudge RUN)"
        yield warning("none were sent", step)
        return
    sent = sum(sandbox.sent for sandbox in canaries.sandboxes)
    right = sum(sandbox.right for sandbox in canaries.sandboxes)
    figure = f"{right} of {sent} got the expected verdict"
    if canaries.distrust:
        step = "fix the sandbox, check it with plumb doctor, then plumb rejudge RUN"
        yield failure(f"{figure}: {canaries.distrust[0]}", step)
    elif canaries.lost or any(sandbox.unjudged for sandbox in canaries.sandboxes):
        lost = f"{figure}, {canaries.lost} rounds lost"
        yield warning(lost, "check the sandboxes with plumb doctor")
    else:
        yield passed(figure)


def _judge(evidence: Evidence) -> Iterator[Result]:
    """What the verdicts follow: rules, interpreter, packages, processor."""
    record, rules = evidence.record, evidence.config.judge.rules
    stale = f"judged by rules {rules}, the present ones are {RULES}"
    doubts = [stale] if rules != RULES else []
    first = next(iter(record.environments), None)
    for other in record.environments[1:]:
        differences = record.environments[0].deciding(other)
        doubts += [f"{what} is {here} and {there}" for what, here, there in differences]
    if doubts:
        yield warning("; ".join(doubts), REJUDGE)
    if record.sandbox is not None and record.sandbox.lacking:
        lacking = f"programs cannot import {', '.join(record.sandbox.lacking)}"
        yield warning(lacking, "judge again without PLUMBLINE_SANDBOX_PYTHON")
    elif not doubts:
        yield passed(f"rules {rules}, {first.describe()}" if first else f"rules {rules}")


def _metrics(evidence: Evidence) -> Iterator[Result]:
    for name in evidence.datasets:
        metrics = evidence.summary.get(name, {})
        none_solved = not metrics.get("accepted_at_1")
        unknown = [
            key
            for key in _PLANNED
            if metrics.get(key) is None and not (none_solved and key.startswith("cost_per_solved_"))
        ]
        if not metrics:
            yield failure("no summary", "repeat the run's command: it publishes the summary", name)
        elif absent := [key for key in _PLANNED if key not in metrics]:
            step = "publish the run with this version: repeat its command"
            yield failure(f"missing: {', '.join(absent)}", step, name)
        elif unknown:
            step = "repeat the run's command if samples have no verdict"
            if any("token" in key or "time" in key for key in unknown):
                step = (
                    "recorded completions need output_tokens (or data.tokenizer) and gen_time; a "
                    "server must report usage"
                )
            yield warning(f"unknown: {', '.join(unknown)}", step, name)
        else:
            none = ", none per solved" if none_solved else ""
            yield passed(f"{', '.join(_GROUPS)}: all {len(_PLANNED)}{none}", name)


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
            figure = f"{len(unlisted)} problems of the run are not listed ({unlisted[0]}, …)"
            yield failure(figure, _PREPARE, name)
        else:
            yield passed(f"{len(listed)} problems listed", name)


def _audit(evidence: Evidence) -> Iterator[Result]:
    data = evidence.data
    if isinstance(data, str):
        yield warning(f"not at hand: {data}", "name the data files with --data")
        return
    if overlaps := data.open_overlaps:
        figure = f"{len(overlaps)} unreviewed overlaps between sets ({overlaps[0]}, …)"
        step = "remove them, or list them in a file for --allow, then plumb data prepare"
        yield failure(figure, step)
    if not data.has_report:
        yield failure(f"no audit_report.md in {data.folder}", _PREPARE_DATA)
    if not data.training:
        figure = "no training set among the manifests: leakage from training data was not checked"
        step = "prepare one with role: train, or plumb data contamination --against CORPUS"
        yield warning(figure, step)
    if data.has_report and not data.open_overlaps:
        yield passed(f"no unreviewed overlap between sets, {data.reviewed_overlaps} reviewed")


def _qa_logs(evidence: Evidence) -> Iterator[Result]:
    for name in BASELINE_SETS:
        wanted, log = sum(QUOTAS[name].values()), evidence.record.qa_logs.get(name)
        if log is None:
            step = "repeat the run's command: it writes the QA logs"
            if name not in evidence.datasets:
                step = f"add {name}.parquet to data.eval_files"
            yield failure(f"0 of {wanted}", step, name)
            continue
        records, filled = evidence.qa_records.get(log.file, 0), sum(log.filled.values())
        figure = f"{records} of {wanted}"
        figure += f" ({filled} in place of rarer statuses)" if filled else ""
        if records >= wanted:
            yield passed(figure, name)
            continue
        step = "run all problems of the set"
        if sum(log.wanted.values()) < wanted:
            step = f"raise qa_logs.quotas.{name} to {wanted}, and repeat the run's command"
        elif records < sum(log.chosen.values()):
            step = f"repeat the run's command: it writes {log.file} again"
        yield failure(figure, step, name)


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
        figure = f"{path} is {shown(ours.get(path))}, the baseline's {value}"
        yield warning(figure, f"run with {path}={value}")
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
