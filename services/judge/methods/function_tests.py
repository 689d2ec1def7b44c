"""HumanEval and MBPP: the answer and its tests in one program, one ``/run_code`` per completion.

Accepted is what runs its tests to the end: the program reports with a random token after the last
test, so leaving early passes nothing.
"""

import secrets

from services.judge.outcome import CaseOutcome, Judgement
from services.judge.programs import classify, humaneval_program, mbpp_program
from services.judge.sandbox import Attempts, RunCode, RunCodeResponse, SandboxClient
from shared.config import Config
from shared.extraction import extract_python
from shared.schemas import HumanEvalTests, MbppTests
from shared.statuses import CaseCode, FinalStatus

NAME = "function"
CHECKER = "asserts"


async def judge(
    sandbox: SandboxClient,
    config: Config,
    completion: str,
    tests: HumanEvalTests | MbppTests,
    attempts: Attempts,
) -> Judgement:
    """Run the tests against the answer.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable answer.
    """
    token = secrets.token_hex(16)
    if isinstance(tests, HumanEvalTests):
        shown = [tests.test]
        extraction = extract_python(completion, entry_point=tests.entry_point)
        program = humaneval_program(extraction, tests, token)
    else:
        shown = tests.test_list
        extraction = extract_python(completion)
        program = mbpp_program(extraction, tests, token)
    if not extraction.found:
        return Judgement(
            NAME, CHECKER, len(shown), status=FinalStatus.SYNTAX_ERROR, detail=extraction.reason
        )
    limits = config.sandbox
    answer = await sandbox.run_code(
        RunCode(
            code=program,
            language="python",
            stdin="",
            compile_timeout=limits.timeout,
            run_timeout=limits.timeout,
            memory_limit_mb=limits.memory_limit_mb,
        ),
        attempts,
    )
    return Judgement(NAME, CHECKER, len(shown), _outcomes(answer, shown, token))


def _outcomes(answer: RunCodeResponse, shown: list[str], token: str) -> list[CaseOutcome]:
    run = answer.run_result
    if run is None:
        return [CaseOutcome(CaseCode.API_ERROR, detail="no run result")] * len(shown)
    stdout, stderr = run.stdout or "", run.stderr or ""
    codes, detail = classify(
        run.return_code,
        stdout,
        stderr,
        token,
        run.status == "TimeLimitExceeded",
        len(shown),
    )
    # One run for all cases: its time is put down to the first.
    durations = [run.execution_time or 0.0, *[0.0] * (len(shown) - 1)]
    printed = stdout.replace(token, "")
    return [
        CaseOutcome(
            code=code,
            duration=duration,
            detail=None if code is CaseCode.PASSED else detail,
            expected=test,
            actual=printed,
            stderr=stderr,
        )
        for code, duration, test in zip(codes, durations, shown, strict=True)
    ]
