"""Function tests (HumanEval, MBPP): the answer in one process, its tests in another.

The tests call the answer's functions with values, so an answer cannot get at them. Where values are
not enough (see ``shared.function_plan``), one program contains the answer and all tests. The
verdict then has ``shared_process``.
"""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace

from services.judge import calls
from services.judge.calls import Method, Task
from services.judge.sandbox import source
from services.judge.verdict import CaseOutcome, Lateness, Outcomes, exit_detail, lateness
from shared.extraction import Extraction, called_functions, extract
from shared.function_plan import plan_of, with_prompt
from shared.harness.function_tester import HEADER
from shared.harness.wire import CaseRun, FunctionEnd, FunctionReport
from shared.schemas import HumanEvalTests, MbppTests
from shared.statuses import CaseCode, JudgeMethod, VerdictDetail

# CPU seconds of all calls together where each call has the limit, with the reference's own: twice
# the 60 seconds that EvalPlus allows for the base inputs, and for the plus inputs.
ALL_CALLS = 120.0


class FunctionMethod(Method):
    name = JudgeMethod.FUNCTION
    checker = "asserts"
    extraction: Extraction

    def __init__(self, task: Task, tests: HumanEvalTests | MbppTests) -> None:
        self._tests = tests
        self._plan = plan_of(tests)
        self.shared_process = self._plan.shared is not None
        if isinstance(tests, HumanEvalTests):
            self._shown = [tests.test]
            called = frozenset({tests.entry_point})
        else:
            self._shown = tests.test_list
            called = called_functions(tests.test_list, tests.test_setup_code)
        self.extraction = extract(task.completion, entry_point=called)

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        fault, tests = self._plan.fault, self._plan.tests
        if fault is None and self._plan.imports:
            failed = await task.sandbox.failed_imports(self._plan.imports, task.attempts)
            fault = next(iter(failed.values()), None)
        if fault is not None:  # which no answer can bring about
            return self._broken(fault)
        if self._tests.limit_per_call:
            limits = calls.case_limits(task)
            tests = replace(tests, call_limits=[limits.cpu, limits.wall])
            task = _for_all_calls(task)
        if self.shared_process:
            token = secrets.token_hex(16)
            outcome, case = await calls.run_once(
                task, function_program(self.extraction, self._tests), token, "python"
            )
        else:
            token, answer = "", self.extraction.code
            if isinstance(self._tests, HumanEvalTests):
                answer, prelude = with_prompt(self.extraction, self._tests)
                tests = replace(tests, prelude=prelude)
            outcome, case = await calls.run_once(task, answer, tests.payload, "functions")
        if outcome is calls.LOST:
            return dict.fromkeys(range(len(self._shown)), outcome)
        if case is None:
            codes = [outcome.code] * len(self._shown)
            return self._outcomes(replace(outcome, actual=""), codes, outcome.detail)
        if self.shared_process:
            return self._of_program(outcome, case, token)
        return self._of_report(task, outcome, case)

    def _broken(self, fault: str) -> Outcomes:
        broken = CaseOutcome(CaseCode.API_ERROR, detail=VerdictDetail.TEST_ERROR, stderr=fault)
        return dict.fromkeys(range(len(self._shown)), broken)

    def _of_report(self, task: Task, outcome: CaseOutcome, case: CaseRun) -> Outcomes:
        """Outcomes of tests that ran in a process of their own."""
        report = FunctionReport.decode(case.stdout)
        if report.end is FunctionEnd.LATE:
            late = lateness(replace(case, limit="cpu"), case.cpu, case.cpu, alone=task.alone)
            outcome = replace(outcome, lateness=late)
        timed_out = outcome.lateness is not Lateness.IN_TIME
        codes = codes_of([CaseCode(code) for code in report.codes], len(self._shown), timed_out)
        exit_code = outcome.exit_code if report.lost else 1
        detail = exit_detail(codes, exit_code, case.stderr, timed_out)
        if report.end is FunctionEnd.MISSING:
            detail = VerdictDetail.MISSING_FUNCTION
        elif report.end is FunctionEnd.UNUSABLE:
            return self._broken(case.stderr)
        returned, traceback, frames = case.stderr.partition(HEADER)
        outcome = replace(
            outcome,
            actual="",
            stderr=traceback + frames or returned,
            # The answer's own exit code, if it ended; otherwise it is that of the tests.
            exit_code=outcome.exit_code if report.lost else None,
        )
        outcomes = self._outcomes(outcome, codes, detail)
        failed = next((i for i, code in enumerate(codes) if code is not CaseCode.PASSED), None)
        if traceback and failed is not None:
            outcomes[failed] = replace(outcomes[failed], actual=returned.rstrip())
        return outcomes

    def _of_program(self, outcome: CaseOutcome, case: CaseRun, token: str) -> Outcomes:
        """Outcomes of tests that ran in the answer's process."""
        stdout = case.stdout.decode("utf-8", "replace")
        timed_out = outcome.lateness is not Lateness.IN_TIME
        codes = codes_of(reported_codes(stdout, token), len(self._shown), timed_out)
        detail = exit_detail(codes, case.exit_code, case.stderr, timed_out)
        stdout = re.sub(rf"\n{token} \[.*\]\n", "", stdout)
        return self._outcomes(replace(outcome, actual=stdout), codes, detail)

    def _outcomes(
        self, outcome: CaseOutcome, codes: Sequence[CaseCode], detail: VerdictDetail | str | None
    ) -> Outcomes:
        # One run for all cases: its time is attributed to the first.
        later = replace(
            outcome,
            duration=0.0,
            cpu_time=None if outcome.cpu_time is None else 0.0,
            lateness=Lateness.IN_TIME,
            killed=False,
            compiling=None,
        )
        return {
            place: replace(
                later if place else outcome,
                code=code,
                detail=None if code is CaseCode.PASSED else detail,
                expected=test,
            )
            for place, (code, test) in enumerate(zip(codes, self._shown, strict=True))
        }


def _for_all_calls(task: Task) -> Task:
    """Return the task with limits of all calls together; only CPU time counts there."""
    limits = {"timeout": max(task.limits.timeout, ALL_CALLS)}
    return replace(
        task,
        limits=task.limits.model_copy(update=limits),
        settings=task.settings.model_copy(update={"wall_factor": 1.0}),
    )


# One program of the answer and its tests


def function_program(answer: Extraction, tests: HumanEvalTests | MbppTests) -> str:
    """Build the program that runs the tests in the answer's process.

    HumanEval's ``check(entry_point)`` is one case. The program begins with the part of the prompt
    before the entry point (imports, helper functions), or with the whole prompt if the answer is
    only the body of the function. The answer may redefine anything; the test's ``check`` replaces a
    ``check`` of the answer. ``__future__`` imports of the prompt hold for the answer too.

    Each statement of MBPP's ``test_list`` is a case. The setup code runs before the answer, or
    after it if it uses names that the answer defines.
    """
    if isinstance(tests, HumanEvalTests):
        code, setup = with_prompt(answer, tests)
        # Some tests draw random inputs; a fixed seed makes the verdict deterministic.
        seed = "import random; random.seed(0)\n" if "random" in tests.test else ""
        statements = [f"{seed}{tests.test}\ncheck({tests.entry_point})\n"]
    else:
        code, setup, statements = answer.code, tests.test_setup_code, tests.test_list
    # ascii() escapes lone surrogates and everything else that an encoding could change.
    arguments = ", ".join(ascii(part) for part in (setup, code, statements))
    return f"{source('functions')}\n\nrun({arguments})\n"


def reported_codes(stdout: str, token: str) -> list[CaseCode]:
    """Return the codes in the last line that begins with the token of a function-test program.

    An ``AssertionError`` is a wrong answer, even if the answer's own code raises it. Any other
    exception is a runtime error.
    """
    for line in reversed(stdout.splitlines()):
        if line.startswith(f"{token} "):
            try:
                return [CaseCode(code) for code in json.loads(line.removeprefix(f"{token} "))]
            except (ValueError, TypeError):
                continue  # cut off in the middle
    return []


def codes_of(reported: Sequence[CaseCode], cases: int, timed_out: bool) -> list[CaseCode]:
    """Complete the codes that the tests reported to one for each case.

    Without a report a case has not passed: it is a time-out, or else a runtime error for an early
    exit or a crash. A run that exceeds its time is never accepted: without a case that had no time
    left, its last one is the time-out.
    """
    codes = list(reported)[:cases]
    rest = CaseCode.TIMEOUT if timed_out else CaseCode.RUNTIME_ERROR
    codes += [rest] * (cases - len(codes))
    if timed_out and CaseCode.TIMEOUT not in codes:
        codes[-1] = CaseCode.TIMEOUT
    return codes
