"""The outcomes of a test case and of a sample, under verl's and the plan's names."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum


class FinalStatus(StrEnum):
    """What became of a sample."""

    SUCCESS = "success"
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    SYNTAX_ERROR = "syntax_error"
    EMPTY_OUTPUT = "empty_output"
    API_ERROR = "api_error"

    @property
    def executed(self) -> bool:
        """Whether the program ran to its end on the tests (counts for exec_success_rate)."""
        return self in (FinalStatus.SUCCESS, FinalStatus.WRONG_ANSWER)


class CaseCode(IntEnum):
    """Result of one test case; the numbers are verl's (there True is 1, False is 0)."""

    PASSED = 1
    WRONG_ANSWER = 0
    API_ERROR = -1
    RUNTIME_ERROR = -2
    TIMEOUT = -3
    COMPILE_ERROR = -4


CASE_STATUS: dict[CaseCode, FinalStatus] = {
    CaseCode.PASSED: FinalStatus.SUCCESS,
    CaseCode.WRONG_ANSWER: FinalStatus.WRONG_ANSWER,
    CaseCode.API_ERROR: FinalStatus.API_ERROR,
    CaseCode.RUNTIME_ERROR: FinalStatus.RUNTIME_ERROR,
    CaseCode.TIMEOUT: FinalStatus.TIMEOUT,
    CaseCode.COMPILE_ERROR: FinalStatus.SYNTAX_ERROR,
}

_PRECEDENCE = (
    CaseCode.COMPILE_ERROR,
    CaseCode.RUNTIME_ERROR,
    CaseCode.TIMEOUT,
    CaseCode.WRONG_ANSWER,
)


def fold_cases(codes: Sequence[CaseCode]) -> FinalStatus:
    """Fold the cases of one sample into its status.

    Any case without an outcome of its own (``API_ERROR``) makes the sample ``api_error``: trouble
    of ours is never counted against the answer. Else the first of compile error, runtime error,
    time-out and wrong answer that occurs decides; all passed is ``success``. No cases at all is
    ``api_error`` too, for nothing was judged.
    """
    if not codes or CaseCode.API_ERROR in codes:
        return FinalStatus.API_ERROR
    for code in _PRECEDENCE:
        if code in codes:
            return CASE_STATUS[code]
    return FinalStatus.SUCCESS
