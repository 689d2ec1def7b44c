"""Enums of judging: statuses, case codes, methods, details, failure kinds, extraction reasons; who
counted tokens.

The values are those in the artifacts and in the ledger.
"""

from collections.abc import Sequence
from enum import IntEnum, StrEnum


class FinalStatus(StrEnum):
    """Final status of a sample."""

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


class TokenSource(StrEnum):
    """Who counted the tokens of a completion, if not the engine that made it.

    ``TOKENIZER``: we did, with ``data.tokenizer``. ``ESTIMATE``: the backend ``replay`` took four
    characters for a token.
    """

    TOKENIZER = "tokenizer"
    ESTIMATE = "estimate"


class CaseCode(IntEnum):
    """Result of one test case; the numbers are verl's (there True is 1, False is 0).

    ``NOT_RUN`` is ours: the answer had used up its budget of time-outs (``judge.max_timeouts``)
    before this case. Methods that speak verl's codes never give it.
    """

    PASSED = 1
    WRONG_ANSWER = 0
    API_ERROR = -1
    RUNTIME_ERROR = -2
    TIMEOUT = -3
    COMPILE_ERROR = -4
    NOT_RUN = -5


# Name of ``CaseCode.NOT_RUN`` in the breakdown of a verdict. Such a case has no status: the
# time-outs before it decide.
NOT_RUN = "not_run"
# In the order in which a case decides the status of its sample.
CASE_STATUS: dict[CaseCode, FinalStatus] = {
    CaseCode.API_ERROR: FinalStatus.API_ERROR,
    CaseCode.COMPILE_ERROR: FinalStatus.SYNTAX_ERROR,
    CaseCode.RUNTIME_ERROR: FinalStatus.RUNTIME_ERROR,
    CaseCode.TIMEOUT: FinalStatus.TIMEOUT,
    CaseCode.WRONG_ANSWER: FinalStatus.WRONG_ANSWER,
    CaseCode.PASSED: FinalStatus.SUCCESS,
}


def aggregate_cases(codes: Sequence[CaseCode]) -> FinalStatus:
    """Aggregate the case codes of one sample into its status.

    Any unjudged case (``API_ERROR``) makes the sample ``api_error``, because an infrastructure
    failure never counts against the answer. Otherwise the precedence is compile error, runtime
    error, time-out, wrong answer; if all cases passed, the status is ``success``. Without any case
    it is ``api_error``, because nothing was judged. Cases that were not run decide nothing; without
    the time-outs that explain them the sample is ``api_error``, never ``success``.
    """
    if CaseCode.NOT_RUN in codes and CaseCode.TIMEOUT not in codes:
        return FinalStatus.API_ERROR
    decisive = (status for code, status in CASE_STATUS.items() if code in codes)
    return next(decisive, FinalStatus.API_ERROR)


class JudgeMethod(StrEnum):
    """Method that produced a verdict.

    A config chooses ``BATCH``, ``SUBMIT`` or ``COMPUTE_SCORE``. ``GUARD``: the completion was
    rejected without a sandbox. ``NONE``: an infrastructure failure left the sample unjudged.
    """

    BATCH = "batch"
    SUBMIT = "submit"
    COMPUTE_SCORE = "compute_score"
    FUNCTION = "function"
    GUARD = "guard"
    NONE = "none"


class VerdictDetail(StrEnum):
    """Details of a status; a verdict may have the name of a signal instead."""

    NO_CODE_BLOCK = "no_code_block"
    PROSE_ONLY = "prose_only"
    FRAGMENT = "fragment"
    UNCLOSED_FENCE = "unclosed_fence"
    EMPTY = "empty"
    COMPLETION_TOO_LONG = "completion_too_long"
    INVALID_UTF8 = "invalid_utf8"
    COMPILE_TIMEOUT = "compile_timeout"
    WALL_GUARD = "wall_guard"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    EARLY_EXIT = "early_exit"
    KILLED_TWICE = "killed_twice"
    HARNESS_KILLED = "harness_killed"
    NOT_UTF8 = "not_utf8"
    NO_RUN_RESULT = "no run result"
    NO_FAILURE_REASON = "failed without a reason"
    UNFINISHED_RUN = "success without a finished run"
    MISSING_RESULTS = "cases without a result"
    JUDGE_WORKER_LOST = "judge_worker_lost"
    MISSING_FUNCTION = "missing_function"
    MISSING_MODULE = "missing_module"
    TEST_ERROR = "test_error"
    NO_RESPONSE = "no_response"


class Convention(StrEnum):
    """Project whose conventions a problem's tests follow."""

    VERL = "verl"
    LIVECODEBENCH = "livecodebench"
    APPS = "apps"


class FailureKind(StrEnum):
    """Kinds of infrastructure failures with a fixed name.

    Others are ``http_<status>`` and, for a failed connection, the exception's class name.
    """

    SANDBOX = "sandbox"
    CONFIG = "config"
    READ_TIMEOUT = "read_timeout"
    SANDBOX_ERROR = "SandboxError"
    UNUSABLE_ANSWER = "unusable answer"
    CHECKER = "the problem's checker failed"
    COMPILER = "the sandbox cannot compile"
    HARNESS = "the harness does not run in the sandbox"
    JUDGE_WORKER_LOST = "judge_worker_lost"


class ExtractionReason(StrEnum):
    """Place in the completion where the code was found, or the reason why no code was found."""

    FENCED = "fenced"
    UNLABELLED = "unlabelled"
    COMBINED = "combined"
    UNCLOSED_FENCE = "unclosed_fence"
    FRAGMENT = "fragment"
    BARE_CODE = "bare_code"
    BODY_ONLY = "body_only"
    PROSE_HEURISTIC = "prose_heuristic"
    NO_CODE_BLOCK = "no_code_block"
    PROSE_ONLY = "prose_only"
    EMPTY = "empty"


PARTS_OF_PROGRAMS = (ExtractionReason.FRAGMENT, ExtractionReason.UNCLOSED_FENCE)
"""Reasons that explain why code does not compile."""
