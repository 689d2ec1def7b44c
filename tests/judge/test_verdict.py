"""Verdict rules: lateness, confirmation, aggregation, and the budget of time-outs."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from services.judge.sandbox import Attempts
from services.judge.verdict import (
    CaseOutcome,
    Judgement,
    Lateness,
    conclude,
    count_confirmed,
    doubtful_cases,
    is_syntax_error,
    lateness,
    settle,
    was_killed,
)
from shared.harness.wire import CaseRun, Limit
from shared.schemas import JudgedCode, Verdict
from shared.statuses import CaseCode, ExtractionReason, FinalStatus, JudgeMethod, VerdictDetail
from tests.judge.stand_ins import BEHAVIOURS, Simulated
from tests.judge.tasks import as_verdict, fenced, make_task, stdio, verdict_of

IN_TIME, DOUBTFUL, LATE = Lateness
PASSED = CaseOutcome(CaseCode.PASSED)
WRONG = CaseOutcome(CaseCode.WRONG_ANSWER)
TIMEOUT = CaseOutcome(CaseCode.TIMEOUT, lateness=LATE)
NOT_RUN = CaseOutcome(CaseCode.NOT_RUN)
KILLED = CaseOutcome(CaseCode.RUNTIME_ERROR, detail="SIGKILL", killed=True)


def case_run(cpu: float, user: float, limit: Limit | None, exit_code: int = 0) -> CaseRun:
    return CaseRun(exit_code, cpu, user, 1.0, 0, limit, b"", "")


@pytest.mark.parametrize(
    ("exit_code", "cpu", "limit", "killed"),
    [
        (-9, 0.5, None, True),
        (-9, 1.2, None, True),
        (-9, 1.25, None, False),  # the kernel's own limit of CPU time, above ours
        (-9, 1.25, "cpu", False),
        (-9, 0.5, "wall", False),
        (-9, 0.5, "output", False),
        (-11, 0.5, None, False),
        (137, 0.5, None, False),
        (0, 0.5, None, False),
    ],
)
def test_killed_by_somebody_else(
    exit_code: int, cpu: float, limit: Limit | None, killed: bool
) -> None:
    assert was_killed(case_run(cpu, cpu, limit, exit_code), 1.25) is killed


def test_only_a_case_that_is_killed_twice_has_failed() -> None:
    first = dict(enumerate([KILLED, KILLED, NOT_RUN, PASSED]))
    assert doubtful_cases(first) == doubtful_cases(first, timeouts=False) == [0, 1, 2]
    again = settle(first, {0: KILLED, 1: PASSED, 2: KILLED})
    assert (again[0].code, again[0].detail) == (CaseCode.RUNTIME_ERROR, VerdictDetail.KILLED_TWICE)
    assert again[1] == again[3] == PASSED
    assert doubtful_cases(again) == [2]  # killed for the first time
    assert count_confirmed([0, 1, 2], first, again) == (2, 1)
    assert doubtful_cases(settle(again, {2: KILLED})) == []


@pytest.mark.parametrize(
    ("cpu", "user", "limit", "first", "alone"),
    [
        (0.9, 0.9, None, IN_TIME, IN_TIME),
        (1.0, 1.0, None, IN_TIME, IN_TIME),
        (1.03, 1.03, None, DOUBTFUL, IN_TIME),  # within the error of a measurement
        (1.1, 1.1, None, DOUBTFUL, DOUBTFUL),  # measured once more
        (1.24, 1.24, None, DOUBTFUL, DOUBTFUL),
        (1.1, 0.9, None, DOUBTFUL, DOUBTFUL),  # the kernel took the rest
        (1.25, 1.25, "cpu", LATE, LATE),
        (1.3, 1.26, None, LATE, LATE),
        (1.25, 1.0, "cpu", DOUBTFUL, LATE),
        (0.1, 0.1, "wall", DOUBTFUL, LATE),
        (0.5, 0.5, "output", IN_TIME, IN_TIME),
    ],
)
def test_lateness(
    cpu: float, user: float, limit: Limit | None, first: Lateness, alone: Lateness
) -> None:
    """Of 1 CPU second, killed at 1.25."""
    run = case_run(cpu, user, limit)
    assert lateness(run, 1.0, 1.25, alone=False) is first
    assert lateness(run, 1.0, 1.25, alone=True) is alone


@pytest.mark.parametrize(
    ("cases", "status", "detail"),
    [
        ([PASSED, PASSED], None, None),
        ([PASSED], FinalStatus.API_ERROR, VerdictDetail.MISSING_RESULTS),
        ([], FinalStatus.API_ERROR, VerdictDetail.MISSING_RESULTS),
        ([WRONG], None, None),
    ],
)
def test_cases_without_a_result_have_not_passed(
    cases: list[CaseOutcome], status: FinalStatus | None, detail: VerdictDetail | None
) -> None:
    verdict = conclude(JudgeMethod.SUBMIT, "lines", 2, dict(enumerate(cases)))
    assert (verdict.status, verdict.detail) == (status, detail)


@pytest.mark.parametrize(
    ("method", "status"),
    [
        (JudgeMethod.COMPUTE_SCORE, FinalStatus.SYNTAX_ERROR),
        (JudgeMethod.SUBMIT, FinalStatus.SYNTAX_ERROR),
        (JudgeMethod.BATCH, None),  # there the harness compiles
    ],
)
def test_what_does_not_compile_is_a_syntax_error(
    method: JudgeMethod, status: FinalStatus | None
) -> None:
    case = CaseOutcome(CaseCode.RUNTIME_ERROR, stderr="SyntaxError: invalid syntax")
    assert conclude(method, "c", 2, {0: case, 1: case}).status is status
    assert conclude(method, "c", 2, {0: case, 1: PASSED}).status is None


def test_cases_that_were_not_run_are_counted_apart() -> None:
    cases = [PASSED, TIMEOUT, NOT_RUN, NOT_RUN]
    judgement = conclude(JudgeMethod.BATCH, "c", 4, dict(enumerate(cases)))
    verdict = as_verdict(judgement, "x", Attempts())
    assert (verdict.final_status, verdict.accepted) == (FinalStatus.TIMEOUT, False)
    assert (verdict.pass_ratio, verdict.cases_not_run, verdict.not_run_ratio) == (0.25, 2, 0.5)
    assert verdict.case_codes == [1, -3, -5, -5]
    assert (verdict.error_breakdown["timeout"], verdict.error_breakdown["not_run"]) == (1, 2)
    assert verdict.first_failed_case is not None
    assert (verdict.first_failed_case.case_index, verdict.detail) == (1, None)


@pytest.mark.parametrize(
    ("stderr", "verdict"),
    [
        ('  File "main.py", line 1\n    a = = 1\n        ^\nSyntaxError: invalid syntax\n', True),
        ('File "x", line 1\n  x\nIndentationError: unexpected indent\n', True),
        ('  File "x", line 2\n    x\nTabError: inconsistent use\n', True),
        ('Traceback (most recent call last):\n  File "x"\nSyntaxError: invalid\n', False),
        ('  File "x", line 1\nValueError: x\n', False),
        ("SyntaxError: invalid syntax", True),
        ("", False),
        ('  File "x", line 1\nSyntaxError: a\nmore\n', False),
    ],
)
def test_what_python_says_of_a_program_it_cannot_compile(stderr: str, verdict: bool) -> None:
    outcome = CaseOutcome(CaseCode.RUNTIME_ERROR, actual="", stderr=stderr)
    assert is_syntax_error(outcome) is verdict
    assert not is_syntax_error(CaseOutcome(CaseCode.RUNTIME_ERROR, actual="1", stderr=stderr))
    assert not is_syntax_error(CaseOutcome(CaseCode.WRONG_ANSWER, actual="", stderr=stderr))


@pytest.mark.parametrize(
    ("reason", "code", "detail"),
    [
        (ExtractionReason.FRAGMENT, CaseCode.COMPILE_ERROR, "fragment"),
        (ExtractionReason.UNCLOSED_FENCE, CaseCode.COMPILE_ERROR, "unclosed_fence"),
        (ExtractionReason.FENCED, CaseCode.COMPILE_ERROR, None),
        (ExtractionReason.UNCLOSED_FENCE, CaseCode.WRONG_ANSWER, None),
    ],
)
def test_the_detail_of_code_that_is_a_part_of_a_program(
    reason: ExtractionReason, code: CaseCode, detail: str | None
) -> None:
    judged = JudgedCode.of("x = (", reason, 0)
    cases = [CaseOutcome(code)]
    judgement = Judgement(JudgeMethod.BATCH, "lines", 1, cases, code=judged)
    assert as_verdict(judgement, "x = (", Attempts()).detail == detail


# The budget of time-outs: what is cut, and that acceptance stays exact


# The code of each behaviour once its time-out is confirmed.
CODES = dict(zip(BEHAVIOURS, (1, 0, -2, -3, -3, 1, -2), strict=True))
CONFIRMED = {
    "judge.confirm_timeouts=true": CODES,
    "judge.confirm_timeouts=false": {**CODES, "waits": -3},
}
# More time-outs than by chance.
KINDS = st.lists(st.sampled_from([*BEHAVIOURS, "passes", "loops", "slow", "waits"]), min_size=1)


def judged(
    kinds: Sequence[str], budget: int | None, *overrides: str, per_call: int = 1000
) -> Verdict:
    cases = [(f"{kind} {place}", "yes") for place, kind in enumerate(kinds)]
    limit = f"judge.max_timeouts={'null' if budget is None else budget}"
    settings = ("sandbox.timeout=1", *overrides, limit)
    task = make_task(Simulated(per_call), stdio(*cases), fenced("pass"), *settings)  # type: ignore[arg-type]
    return asyncio.run(verdict_of(task))


@example(["slow", "waits", "breaks", "loops"], 2, 1, "judge.confirm_timeouts=true")
@example(["breaks", "loops"], 1, 1, "judge.confirm_timeouts=true")
@example([*["breaks"] * 7, "passes"], 1, 3, "judge.confirm_timeouts=true")
@given(KINDS, st.integers(1, 5), st.integers(1, 8), st.sampled_from(list(CONFIRMED)))
def test_a_cut_answer_is_never_accepted_and_any_other_is_exact(
    kinds: list[str], budget: int, per_call: int, confirm: str
) -> None:
    """Also where a second run refutes time-outs: then the cases behind them have to run."""
    assume(kinds.count("breaks") < 8)  # then the judge gives up
    # What a killed harness has not run by then runs alone, and waits for nothing.
    assume(confirm == "judge.confirm_timeouts=true" or "breaks" not in kinds)
    truth = [CONFIRMED[confirm][kind] for kind in kinds]
    exact = judged(kinds, None, confirm, per_call=per_call)
    assert exact.case_codes == truth
    assert exact.cases_not_run == 0
    verdict = judged(kinds, budget, confirm, per_call=per_call)
    late = [place for place, code in enumerate(truth) if code == -3]
    end = late[budget - 1] + 1 if len(late) >= budget else len(truth)
    assert verdict.case_codes == truth[:end] + [-5] * (len(truth) - end)
    assert verdict.accepted == exact.accepted
    assert not (verdict.accepted and verdict.cases_not_run)
    assert (
        verdict.pass_ratio <= exact.pass_ratio <= verdict.pass_ratio + verdict.not_run_ratio + 1e-9
    )
    if verdict.cases_not_run:
        # All that the cases behind the last time-out could change.
        assert verdict.final_status in (exact.final_status, FinalStatus.TIMEOUT)
        assert exact.final_status in (FinalStatus.TIMEOUT, FinalStatus.RUNTIME_ERROR)
    else:
        assert (verdict.final_status, verdict.pass_ratio) == (exact.final_status, exact.pass_ratio)


def test_what_runs_first_decides_between_time_out_and_other_errors() -> None:
    kinds = ["loops", "crashes", "passes"]
    assert judged(kinds, 1).final_status is FinalStatus.TIMEOUT
    assert judged(kinds, 2).final_status is FinalStatus.RUNTIME_ERROR


@pytest.mark.parametrize(
    ("kinds", "most"),
    [
        (["loops"] * 200, 4),
        # They are counted when their call ends, and confirmed; those that count are measured again.
        (["slow"] * 200, 2 * 10 + 2 * 4),
        (["breaks", *["loops"] * 200], 4 + 4),  # two at a time, and confirmed
    ],
)
async def test_an_endless_answer_costs_few_cases(kinds: list[str], most: int) -> None:
    sandbox = Simulated(per_call=10)
    cases = [(f"{kind} {place}", "yes") for place, kind in enumerate(kinds)]
    task = make_task(sandbox, stdio(*cases), fenced("pass"), "sandbox.timeout=1")  # type: ignore[arg-type]
    verdict = await verdict_of(task)
    late = verdict.case_codes.count(-3)
    assert (late, verdict.cases_not_run) == (4, 196)
    assert len(sandbox.ran) <= most + kinds.count("breaks")


def test_the_score_of_verl_has_no_budget() -> None:
    assert judged(["loops"] * 9, 1, "judge.method=compute_score").case_codes == [-3] * 9
