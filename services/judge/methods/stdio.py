"""Tests with inputs and expected outputs: programs, calls of a function by name, verl's rules.

The default method runs all cases of an answer in one call, by the harness. Limits are CPU seconds.
Expected outputs stay in the judge.
"""

from collections.abc import Sequence
from dataclasses import replace

from services.judge import calls
from services.judge.calls import Method, Task
from services.judge.programs import exit_detail, failure_detail, preamble, with_preamble, wrap_call
from services.judge.special_judge import SpecialJudge
from services.judge.verdict import CaseOutcome, Lateness, Outcomes, apply_budget, not_run
from shared.checkers import Checker, exact, get_checker
from shared.extraction import extract, extract_verl
from shared.harness.wire import STRETCH, CaseRun, FunctionEnd, FunctionReport, FunctionTests
from shared.schemas import StdioTests
from shared.statuses import CaseCode, JudgeMethod, VerdictDetail
from shared.text import shown

# Bytes of an output that is kept even though it is right.
_SHORT = 2000
_Code = tuple[CaseCode, VerdictDetail | str | None]


class BatchMethod(Method):
    name = JudgeMethod.BATCH
    has_budget = True

    def __init__(self, task: Task, tests: StdioTests) -> None:
        settings = task.settings
        self._special = SpecialJudge.of(tests)
        # Until the special judge runs, once all outputs are available, exit code 0 passes.
        name = tests.checker or settings.effective_checker
        self.checker = name if self._special is None else self._special.name
        self._passes: Checker = get_checker(name) if self._special is None else lambda *_: True
        language, function = settings.language, tests.fn_name
        self.extraction = extract(task.completion, language=language, entry_point=function)
        self._tests = tests
        self._program = self.extraction.code
        if function is None and language == "python":
            self._program = with_preamble(self._program, tests.convention)
        self._inputs: Sequence[str] = tests.inputs
        self._language = language

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        run = await calls.run_harness(
            task,
            self._program,
            [self._inputs[place] for place in cases],
            lambda i, case: self._outcome(task, cases[i], case),
            self._language,
        )
        if run.compile_error is not None:
            first = run.rejected(task)
            rest = replace(first, stderr=None, compiling=None)
            return {
                place: self._with_texts(place, first if place == cases[0] else rest)
                for place in cases
            }
        outcomes = {
            cases[i]: replace(outcome, compiling=run.compiling) for i, outcome in run.cases.items()
        }
        for i in run.lost:
            outcomes[cases[i]] = self._with_texts(cases[i], calls.LOST)
        skipped = {
            place: not_run(self._tests.inputs[place], self._tests.outputs[place])
            for place in cases
            if place not in outcomes
        }
        return apply_budget(task.settings.max_timeouts, {**outcomes, **skipped})

    async def check(self, task: Task, outcomes: Outcomes) -> Outcomes:
        return outcomes if self._special is None else await self._special.check(task, outcomes)

    def _outcome(self, task: Task, place: int, run: CaseRun) -> CaseOutcome:
        outcome = calls.measured(task, run)
        code, detail = self._code(place, run, outcome.lateness)
        waited = run.wall < STRETCH * calls.case_limits(task).wall
        if detail is VerdictDetail.WALL_GUARD and not waited:
            detail = None  # the machine had no processor for it: it did not wait by itself
        actual = self._kept(run.stdout, code, recorded=task.recorded == "all")
        return self._with_texts(place, replace(outcome, code=code, detail=detail, actual=actual))

    def _kept(self, output: bytes, code: CaseCode, *, recorded: bool) -> str | None:
        """Return what later steps need of an output: a long one only for a special judge."""
        if code is CaseCode.PASSED and (self._special or len(output) <= _SHORT):
            return output.decode()
        if code is CaseCode.PASSED and not recorded:
            return None
        return shown(output.decode("utf-8", "backslashreplace"))

    def _code(self, place: int, run: CaseRun, late: Lateness) -> _Code:
        if late is not Lateness.IN_TIME:
            return CaseCode.TIMEOUT, VerdictDetail.WALL_GUARD if run.limit == "wall" else None
        if run.limit == "output":
            return CaseCode.RUNTIME_ERROR, VerdictDetail.OUTPUT_LIMIT
        if run.exit_code != 0:
            return CaseCode.RUNTIME_ERROR, failure_detail(run.exit_code, run.stderr)
        try:
            passed = self._passes(run.stdout.decode(), self._tests.outputs[place])
        except UnicodeDecodeError:
            return CaseCode.WRONG_ANSWER, VerdictDetail.NOT_UTF8
        return (CaseCode.PASSED if passed else CaseCode.WRONG_ANSWER), None

    def _with_texts(self, place: int, outcome: CaseOutcome) -> CaseOutcome:
        return replace(
            outcome, input=self._tests.inputs[place], expected=self._tests.outputs[place]
        )


class CallMethod(BatchMethod):
    """Calls of a function by name: the answer in one process, its values compared in another.

    Each call is a case: a fresh process that has loaded the answer. Nothing that it prints matters.
    """

    def __init__(self, task: Task, tests: StdioTests) -> None:
        super().__init__(task, tests)
        self.checker = "values"
        self._language = "functions"
        before, convention = preamble(tests.calls, self._program), tests.calls.value
        self._inputs = [
            FunctionTests(before, "", [(*texts, convention)], [f".{tests.fn_name}"]).payload
            for texts in zip(tests.inputs, tests.outputs, strict=True)
        ]

    def _outcome(self, task: Task, place: int, run: CaseRun) -> CaseOutcome:
        outcome = super()._outcome(task, place, run)
        if outcome.code is CaseCode.WRONG_ANSWER:
            return replace(outcome, actual=run.stderr, stderr="")
        return replace(outcome, actual=None)

    def _code(self, place: int, run: CaseRun, late: Lateness) -> _Code:
        if late is not Lateness.IN_TIME:
            return super()._code(place, run, late)
        report = FunctionReport.decode(run.stdout)
        code = CaseCode(report.codes[0]) if report.codes else CaseCode.RUNTIME_ERROR
        if report.end is FunctionEnd.UNUSABLE:
            return CaseCode.API_ERROR, VerdictDetail.TEST_ERROR
        if report.end is FunctionEnd.MISSING:
            return code, VerdictDetail.MISSING_FUNCTION
        exit_code = run.exit_code if report.lost else 1
        return code, exit_detail([code], exit_code, run.stderr, timed_out=False)


class ComputeScoreMethod(Method):
    """verl's reward scoring: one ``/run_code`` per test case by verl's rules.

    The rules are those of ``verl.utils.reward_score.sandbox_fusion`` 0.9.1: code extraction, output
    comparison (equal except for trailing newlines), result codes, and that a compile error in one
    case applies to all later ones. verl has no syntax error for Python and reports a runtime error
    instead; the cases keep verl's code, and the sample's final status is ``syntax_error`` if the
    interpreter could not compile the program. Limits are wall-clock seconds.
    """

    name = JudgeMethod.COMPUTE_SCORE
    checker = "exact"

    def __init__(self, task: Task, tests: StdioTests) -> None:
        self.extraction = extract_verl(task.completion)
        self._tests = tests
        # verl puts two newlines between the program and an (absent) assert statement.
        program = self.extraction.code + "\n\n"
        if tests.fn_name:
            program = wrap_call(program, tests.fn_name)
        self._program = program

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        tests = self._tests
        responses = await calls.run_singles(task, self._program, tests.inputs, cases)
        return {
            place: calls.single_outcome(
                response, tests.inputs[place], tests.outputs[place], exact, alone=task.alone
            )
            for place, response in responses.items()
        }
