"""Function tests (HumanEval, MBPP, MultiPL-E): the answer in one process, its tests in another.

The tests call the answer's functions with values, so an answer cannot get at them. Where values are
not enough (see ``shared.function_plan``), and in other languages than Python, one program contains
the answer and all tests. The verdict then has ``shared_process``.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace

from services.judge import calls
from services.judge.calls import Method, Task
from services.judge.programs import (
    codes_of,
    exit_detail,
    failure_detail,
    humaneval_program,
    mbpp_program,
    reported_codes,
)
from services.judge.translated import is_assertion, program
from services.judge.verdict import CaseOutcome, Lateness, Outcomes, lateness
from shared.extraction import Extraction, called_functions, extract
from shared.extraction.languages import defines_function
from shared.function_plan import plan_of, with_prompt
from shared.harness.function_tester import HEADER
from shared.harness.wire import CaseRun, FunctionEnd, FunctionReport, FunctionTests
from shared.schemas import HumanEvalTests, MbppTests, ProgramTests
from shared.statuses import CaseCode, ExtractionReason, JudgeMethod, VerdictDetail

# CPU seconds of all calls together where each call has the limit, with the reference's own: twice
# the 60 seconds that EvalPlus allows for the base inputs, and for the plus inputs.
ALL_CALLS = 120.0


class FunctionMethod(Method):
    name = JudgeMethod.FUNCTION
    checker = "asserts"

    def __init__(self, task: Task, tests: HumanEvalTests | MbppTests) -> None:
        self._tests = tests
        self._plan = plan_of(tests)
        self.shared_process = self._plan.shared is not None
        if isinstance(tests, HumanEvalTests):
            point = tests.entry_point
            self._answer = extract(task.completion, entry_point=point)
            self._shown = [tests.test]
        else:
            called = called_functions(tests.test_list, tests.test_setup_code)
            self._answer = extract(task.completion, entry_point=called)
            self._shown = tests.test_list
        self.extraction = self._answer

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        if fault := await self._fault(task):
            return self._broken(fault)
        tests = self._plan.tests
        if self._tests.limit_per_call:
            limits = calls.case_limits(task)
            tests = replace(tests, call_limits=[limits.cpu, limits.wall])
            task = _for_all_calls(task)
        if self.shared_process:
            return await self._run_together(task)
        return await self._run_apart(task, tests)

    async def _fault(self, task: Task) -> str | None:
        """Return why the tests cannot run, which no answer can bring about."""
        imports = self._plan.imports
        if self._plan.fault is None and imports:
            failed = await task.sandbox.failed_imports(imports, task.attempts)
            return next(iter(failed.values()), None)
        return self._plan.fault

    def _broken(self, fault: str) -> Outcomes:
        broken = CaseOutcome(CaseCode.API_ERROR, detail=VerdictDetail.TEST_ERROR, stderr=fault)
        return dict.fromkeys(range(len(self._shown)), broken)

    # In two processes

    async def _run_apart(self, task: Task, tests: FunctionTests) -> Outcomes:
        """Run the tests in a process of their own."""
        answer = self._answer.code
        if isinstance(self._tests, HumanEvalTests):
            answer, prelude = with_prompt(self._answer, self._tests)
            tests = replace(tests, prelude=prelude)
        outcome, case = await calls.run_once(task, answer, tests.payload, "functions")
        if case is None:
            return self._without_run(outcome)
        report = FunctionReport.decode(case.stdout)
        if report.end is FunctionEnd.LATE:
            late = lateness(replace(case, limit="cpu"), case.cpu, case.cpu, alone=task.alone)
            outcome = replace(outcome, lateness=late)
        return self._outcomes_apart(outcome, case.stderr, report)

    def _outcomes_apart(
        self, outcome: CaseOutcome, stderr: str, report: FunctionReport
    ) -> Outcomes:
        late = outcome.lateness is not Lateness.IN_TIME
        cases = len(self._shown)
        codes = codes_of([CaseCode(code) for code in report.codes], cases, late)
        detail = exit_detail(codes, outcome.exit_code if report.lost else 1, stderr, late)
        if report.end is FunctionEnd.MISSING:
            detail = VerdictDetail.MISSING_FUNCTION
        elif report.end is FunctionEnd.UNUSABLE:
            return self._broken(stderr)
        returned, traceback, frames = stderr.partition(HEADER)
        outcome = replace(
            outcome,
            actual="",
            stderr=traceback + frames or returned,
            # The answer's own exit code, if it ended; otherwise it is that of the tests.
            exit_code=outcome.exit_code if report.lost else None,
        )
        outcomes = self._outcomes(outcome, codes, detail)
        failed = next((i for i, case in outcomes.items() if case.code is not CaseCode.PASSED), None)
        if traceback and failed is not None:
            outcomes[failed] = replace(outcomes[failed], actual=returned.rstrip())
        return outcomes

    # In one

    async def _run_together(self, task: Task) -> Outcomes:
        token = secrets.token_hex(16)
        if isinstance(self._tests, HumanEvalTests):
            program = humaneval_program(self._answer, self._tests)
        else:
            program = mbpp_program(self._answer, self._tests)
        outcome, case = await calls.run_once(task, program, token, "python")
        if case is None:
            return self._without_run(outcome)
        stdout = case.stdout.decode("utf-8", "replace")
        late = outcome.lateness is not Lateness.IN_TIME
        codes = codes_of(reported_codes(stdout, token), len(self._shown), late)
        detail = exit_detail(codes, case.exit_code, case.stderr, late)
        stdout = re.sub(rf"\n{token} \[.*\]\n", "", stdout)
        return self._outcomes(replace(outcome, actual=stdout), codes, detail)

    def _without_run(self, outcome: CaseOutcome) -> Outcomes:
        if outcome is calls.LOST:
            return dict.fromkeys(range(len(self._shown)), outcome)
        codes = [outcome.code] * len(self._shown)
        return self._outcomes(replace(outcome, actual=""), codes, outcome.detail)

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


# Tests in the language of the answer


class ProgramMethod(Method):
    """Tests of MultiPL-E: one program contains the answer and them, and runs once."""

    name = JudgeMethod.FUNCTION
    checker = "asserts"
    shared_process = True

    def __init__(self, task: Task, tests: ProgramTests) -> None:
        self.extraction = extract_function(task, tests)
        self._tests = tests
        self._token = secrets.token_hex(16)
        self._program = program(self.extraction, tests)

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        outcome, run = await calls.run_once(
            task, self._program, f"{self._token}\n", self._tests.language
        )
        if run is not None:
            outcome = self._judged(outcome, run)
        return {0: replace(outcome, expected=self._tests.program_tests)}

    def _judged(self, outcome: CaseOutcome, run: CaseRun) -> CaseOutcome:
        stdout = run.stdout.decode("utf-8", "replace")
        ended = stdout.rstrip().rpartition("\n")[2] == self._token
        code: CaseCode = CaseCode.PASSED
        detail: VerdictDetail | str | None = None
        if outcome.lateness is not Lateness.IN_TIME:
            code = CaseCode.TIMEOUT
        elif run.exit_code != 0 and is_assertion(stdout, run.stderr):
            code = CaseCode.WRONG_ANSWER
        elif run.exit_code != 0:
            code, detail = CaseCode.RUNTIME_ERROR, failure_detail(run.exit_code, run.stderr)
        elif self._tests.language != "go_test" and not ended:
            code, detail = CaseCode.RUNTIME_ERROR, VerdictDetail.EARLY_EXIT
        shown = stdout.replace(self._token, "").rstrip("\n")
        return replace(outcome, code=code, detail=detail, actual=shown)


def extract_function(task: Task, tests: ProgramTests) -> Extraction:
    """Extract the function; a text without any code block continues the prompt."""
    entry_point = tests.entry_point or None
    extraction = extract(task.completion, language=tests.language, entry_point=entry_point)
    bare = not extraction.found or extraction.reason is ExtractionReason.BARE_CODE
    if not bare or "```" in task.completion:
        return extraction
    whole = defines_function(task.completion, tests.entry_point)
    reason = ExtractionReason.BARE_CODE if whole else ExtractionReason.BODY_ONLY
    return Extraction(task.completion, reason, 0)
