"""The rules of `plumb accept`, on evidence without files."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.analysis.acceptance import report, silent_failures
from shared.analysis.evidence import (
    BASELINE_SETS,
    AnswerCounts,
    Check,
    Evidence,
    Mark,
    PreparedData,
)
from shared.config import QUOTAS
from shared.statuses import FinalStatus
from tests.shared.baselines import figures, record, sandbox

S = FinalStatus
VALID, TEST = "codecontests_valid", "codecontests_test"
HUMANEVAL = "humaneval"


def counts(problems: int, **statuses: int) -> AnswerCounts:
    """Counts with the given statuses; of the rest a twentieth is right and a quarter crashes."""
    given = Counter({S(name): number for name, number in statuses.items()})
    rest = problems - given.total()
    right, ended = rest // 20, rest // 4
    given.update({S.SUCCESS: right, S.RUNTIME_ERROR: ended, S.WRONG_ANSWER: rest - right - ended})
    ids = {f"p{number}" for number in range(problems)}
    return AnswerCounts(statuses=given, finished=problems, problems=ids)


def prepared(**changed: Any) -> PreparedData:
    ids = {name: frozenset(f"p{i}" for i in range(n)) for name, n in BASELINE_SETS.items()}
    values: dict[str, Any] = {
        "folder": "data_manifests",
        "problems": ids,
        "training": ["codecontests_train"],
        "open_overlaps": [],
        "reviewed_overlaps": 1,
        "has_report": True,
        "differences": [],
    }
    return PreparedData(**{**values, **changed})


def evidence(*overrides: str, **changed: Any) -> Evidence:
    """All that a good baseline has; keys of the record, or of the evidence, change it."""
    own = {name: changed.pop(name) for name in list(changed) if name in Evidence.__annotations__}
    values: dict[str, Any] = {
        "record": record(*overrides, **changed),
        "summary": {name: figures() for name in BASELINE_SETS}
        | {HUMANEVAL: figures(accepted_at_1=0.6)},
        "answers": {name: counts(number) for name, number in BASELINE_SETS.items()},
        "qa_records": {
            f"qa_logs/{name}.jsonl": sum(QUOTAS[name].values()) for name in BASELINE_SETS
        },
        "data": prepared(),
        "size": 7.0,
        **own,
    }
    return Evidence(**values)


def changed_answers(dataset: str, **statuses: int) -> dict[str, AnswerCounts]:
    answers = {name: counts(number) for name, number in BASELINE_SETS.items()}
    return {**answers, dataset: counts(BASELINE_SETS[dataset], **statuses)}


def not_passed(of: Evidence) -> list[tuple[Check, Mark, str, str]]:
    findings = report(of, "out").findings
    return [(finding.check, finding.mark, finding.dataset, finding.found) for finding in findings
            if finding.mark is not Mark.PASS]  # fmt: skip


def test_a_good_baseline_passes_every_check():
    found = report(evidence(), "out")
    assert [finding for finding in found.findings if finding.mark is not Mark.PASS] == []
    assert found.outcome is Mark.PASS
    assert {finding.check for finding in found.findings} == set(Check)
    assert all(finding.next_step == "" for finding in found.findings)
    assert silent_failures(evidence()) == []


def sets_of(**numbers: int) -> list[dict[str, Any]]:
    return [
        {"dataset": name, "sha256": "ab", "problems": number, "samples": number}
        for name, number in {**BASELINE_SETS, **numbers}.items()
        if number
    ]


DISTRUST = {
    "sandboxes": [sandbox(right=7, wrong=1, findings=[{"canary": "x", "text": "no limit"}])]
}
RANDOM = {"replicas": {"model": {"weights": {"a": 1}}, "self_check": {"looks_random": True}}}
F, W = Mark.FAILURE, Mark.WARNING
REQUIREMENTS: list[tuple[Evidence, Check, Mark, str, str]] = [
    (evidence(state="running"), Check.STATE, F, "", "running"),
    (evidence(state="failed"), Check.STATE, F, "", "failed: the artifacts could not be written"),
    (evidence(unreadable=["verdicts.jsonl:3: torn"]), Check.STATE, F, "", "verdicts.jsonl:3: torn"),
    (evidence(datasets=sets_of(humaneval=0)), Check.SETS, F, HUMANEVAL, "not in the run"),
    (evidence(datasets=sets_of(humaneval=160)), Check.SETS, W, HUMANEVAL, "160 of 164 problems"),
    (evidence("data.limit=9", datasets=sets_of(humaneval=9)), Check.SETS, F, HUMANEVAL,
     "9 of 164 problems (data.limit=9)"),
    (evidence(answers=changed_answers(VALID, api_error=1)), Check.VERDICTS, W, VALID,
     "116 of 117 judged (0.9% api_error)"),
    (evidence(canaries=None), Check.CANARIES, W, "", "none were sent"),
    (evidence(canaries=DISTRUST, state="untrusted"), Check.CANARIES, F, "",
     "7 of 8 got the expected verdict: sandbox http://s1: no limit"),
    (evidence(canaries={"sandboxes": [sandbox()], "lost": 2}), Check.CANARIES, W, "",
     "8 of 8 got the expected verdict, 2 rounds lost"),
    (evidence(summary={VALID: {k: v for k, v in figures().items() if k != "throughput"}}),
     Check.METRICS, F, VALID, "missing: throughput"),
    (evidence(summary={VALID: figures(avg_total_gen_tokens=None)}), Check.METRICS, W, VALID,
     "unknown: avg_total_gen_tokens"),
    (evidence(data_lock=None), Check.DATA, W, "", "not checked against a lock"),
    (evidence(data_lock={"path": "l", "differences": ["a.parquet has another hash", "b"]}),
     Check.DATA, W, "", "unlocked: a.parquet has another hash (and 1 more)"),
    (evidence(data="no lock"), Check.MANIFESTS, W, "", "not at hand: no lock"),
    (evidence(data=prepared(differences=["overlaps.jsonl has another hash"])), Check.MANIFESTS, F,
     "", "overlaps.jsonl has another hash"),
    (evidence(data=prepared(problems={})), Check.MANIFESTS, F, VALID,
     f"no {VALID}.jsonl in data_manifests"),
    (evidence(data=prepared(problems={VALID: frozenset({"p0", "p1"})})), Check.MANIFESTS, F, VALID,
     "115 problems of the run are not listed (p10, …)"),
    (evidence(data=prepared(open_overlaps=["a/1 and b/2"])), Check.AUDIT, F, "",
     "1 unreviewed overlaps between sets (a/1 and b/2, …)"),
    (evidence(data=prepared(has_report=False)), Check.AUDIT, F, "",
     "no audit_report.md in data_manifests"),
    (evidence(data=prepared(training=[])), Check.AUDIT, W, "",
     "no training set among the manifests: leakage from training data was not checked"),
    (evidence(qa_logs={}), Check.QA_LOGS, F, HUMANEVAL, "0 of 20"),
    (evidence(qa_records={}), Check.QA_LOGS, F, VALID, "0 of 50"),
    (evidence("wandb.enabled=true", wandb={"mode": "none", "online_error": "no key"}), Check.WANDB,
     F, "", "not logged: no key"),
    (evidence(wandb={"mode": "offline", "sync": "wandb sync /x"}), Check.WANDB, W, "",
     "logged offline, not uploaded"),
    (evidence("actor_rollout_ref.rollout.temperature=0.8"), Check.PROTOCOL, W, "",
     "actor_rollout_ref.rollout.temperature is 0.8, the baseline's 0.0"),
    (evidence(completions="answers.jsonl"), Check.PROTOCOL, W, "",
     "recorded answers: how they were generated is not known"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "check", "mark", "dataset", "found"), REQUIREMENTS)
def test_what_a_baseline_lacks(given, check, mark, dataset, found):
    assert (check, mark, dataset, found) in not_passed(given)
    steps = {finding.check: finding.next_step for finding in report(given, "out").findings
             if finding.mark is not Mark.PASS}  # fmt: skip
    assert all(steps.values())


SILENT: list[tuple[Evidence, Check, Mark, str, str]] = [
    (evidence(generator=RANDOM), Check.MODEL, F, "", "the server's self-check says random weights"),
    (evidence(answers=changed_answers(VALID, wrong_answer=117)), Check.ZERO, W, VALID,
     "0 of 117 accepted"),
    (
        evidence(
            answers={VALID: counts(117, wrong_answer=117)},
            summary={VALID: figures(accepted_at_1=0.0, pass_ratio_mean=0)},
        ),
        *(Check.ZERO, F, VALID, "0 of 117 accepted, and no test passed"),
    ),
    (evidence(answers=changed_answers(VALID, syntax_error=110)), Check.ONE_STATUS, W, VALID,
     "syntax_error 94.0%"),
    (evidence(answers=changed_answers(TEST, timeout=40)), Check.TIMEOUTS, W, TEST,
     "40 of 165 (24.2%), above 20%"),
    (evidence(answers={TEST: replace(counts(165), truncated=20)}), Check.TRUNCATED, W, TEST,
     "20 of 165 (12.1%), above 5%"),
    (evidence(answers={TEST: replace(counts(165), without_code=30)}), Check.WITHOUT_CODE, W, TEST,
     "30 of 165 (18.2%), above 10%"),
    (evidence(summary={VALID: figures(accepted_at_1=0.34)}), Check.TYPICAL, W, VALID,
     "accepted_at_1 34.0%; 7B base models, greedy: 3-10 %"),
    (evidence(summary={HUMANEVAL: figures(accepted_at_1=0.05)}), Check.TYPICAL, W, HUMANEVAL,
     "accepted_at_1 5.0%; models of 5 to 10 B: 25-90 %"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "check", "mark", "dataset", "found"), SILENT)
def test_silent_failures(given, check, mark, dataset, found):
    assert (check, mark, dataset, found) in not_passed(given)
    at_the_end = {(failure.check, failure.dataset) for failure in silent_failures(given)}
    expected = not found.startswith("success")  # reference solutions are all right
    assert ((check, dataset) in at_the_end) is expected


def test_few_answers_tell_little():
    few = {VALID: replace(counts(8, wrong_answer=7, timeout=1), truncated=1, without_code=1)}
    assert silent_failures(evidence(answers=few, summary={VALID: figures()})) == []
    all_bad = {VALID: replace(counts(8, wrong_answer=8), truncated=8, without_code=8)}
    found = silent_failures(evidence(answers=all_bad, summary={VALID: figures()}))
    assert [one.check for one in found] == [Check.TRUNCATED, Check.WITHOUT_CODE]


def test_many_right_answers_are_typical_of_large_models():
    right = changed_answers(HUMANEVAL, success=155)
    large = evidence(answers=right, size=32.0)
    assert Check.ONE_STATUS not in {check for check, *_ in not_passed(large)}


@settings(max_examples=25)
@given(st.integers(20, 300), st.data())
def test_more_bad_answers_never_look_better(judged, data):
    fewer, more = sorted(data.draw(st.tuples(*[st.integers(0, judged)] * 2)))
    order = list(Mark)

    def marks(bad: int) -> list[int]:
        answers = AnswerCounts(
            statuses=Counter({S.TIMEOUT: bad, S.SUCCESS: judged - bad}),
            finished=judged,
            truncated=bad,
            without_code=bad,
        )
        found = report(evidence(answers={VALID: answers}), "out").findings
        wanted = (Check.TRUNCATED, Check.WITHOUT_CODE, Check.TIMEOUTS, Check.ZERO)
        return [order.index(one.mark) for one in found if one.check in wanted]

    assert all(a <= b for a, b in zip(marks(fewer), marks(more), strict=True))
