from hypothesis import given
from hypothesis import strategies as st

from shared.statuses import CASE_STATUS, CaseCode, FinalStatus, aggregate_cases

PASSED, WRONG = CaseCode.PASSED, CaseCode.WRONG_ANSWER
RUNTIME, LATE = CaseCode.RUNTIME_ERROR, CaseCode.TIMEOUT
COMPILE, OURS = CaseCode.COMPILE_ERROR, CaseCode.API_ERROR
RAN = [code for code in CaseCode if code is not CaseCode.NOT_RUN]


@given(st.lists(st.sampled_from(RAN), min_size=1))
def test_the_status_is_that_of_a_case_and_the_worst_of_all(codes: list[CaseCode]) -> None:
    severity = [OURS, COMPILE, RUNTIME, LATE, WRONG, PASSED]
    worst = min(codes, key=severity.index)
    assert aggregate_cases(codes) is CASE_STATUS[worst]


@given(st.lists(st.sampled_from(RAN)), st.integers(1, 3))
def test_cases_that_were_not_run_decide_nothing(codes: list[CaseCode], left: int) -> None:
    found = aggregate_cases([*codes, *[CaseCode.NOT_RUN] * left])
    assert found is (aggregate_cases(codes) if LATE in codes else FinalStatus.API_ERROR)
