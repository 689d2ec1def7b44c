"""Tests in the language of the answer (MultiPL-E): one program contains both, and runs once.

It runs in the harness, with limits in CPU seconds.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace

from services.judge import calls
from services.judge.methods.base import Method, Task
from services.judge.programs import failure_detail
from services.judge.translated import TRANSLATIONS, is_assertion, program
from services.judge.verdict import CaseOutcome, Lateness, Outcomes
from shared.extraction import Extraction, extract
from shared.extraction.languages import defines_function
from shared.harness.wire import CaseRun
from shared.schemas import ProgramTests
from shared.statuses import CaseCode, ExtractionReason, JudgeMethod, VerdictDetail


class ProgramMethod(Method):
    name = JudgeMethod.FUNCTION
    checker = "asserts"
    shared_process = True

    def __init__(self, task: Task, tests: ProgramTests) -> None:
        self.extraction = extract_function(task, tests)
        self._tests = tests
        self._token = secrets.token_hex(16)
        self._program = program(self.extraction, tests)

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        task = task.in_language(self._tests.language)
        run = await calls.run_harness(task, self._program, [f"{self._token}\n"])
        if run.compile_error is not None:
            outcome = calls.rejected(task, run)
        elif run.cases:
            outcome = self._judged(calls.measured(task, run.cases[0]), run.cases[0])
        else:
            outcome = calls.LOST
        outcome = replace(outcome, compiling=run.compiling.get(0))
        return {0: replace(outcome, expected=self._tests.program_tests)}

    def _judged(self, outcome: CaseOutcome, run: CaseRun) -> CaseOutcome:
        stdout = run.stdout.decode("utf-8", "replace")
        code, detail = self._code(run.exit_code, stdout, run.stderr, outcome.lateness)
        shown = stdout.replace(self._token, "").rstrip("\n")
        return replace(outcome, code=code, detail=detail, actual=shown)

    def _code(
        self, exit_code: int | None, stdout: str, stderr: str, late: Lateness
    ) -> tuple[CaseCode, VerdictDetail | str | None]:
        if late is not Lateness.IN_TIME:
            return CaseCode.TIMEOUT, None
        if exit_code != 0:
            if is_assertion(stdout, stderr):
                return CaseCode.WRONG_ANSWER, None
            return CaseCode.RUNTIME_ERROR, failure_detail(exit_code, stderr)
        ended = stdout.rstrip().rpartition("\n")[2] == self._token
        if TRANSLATIONS[self._tests.language].has_token and not ended:
            return CaseCode.RUNTIME_ERROR, VerdictDetail.EARLY_EXIT
        return CaseCode.PASSED, None


def extract_function(task: Task, tests: ProgramTests) -> Extraction:
    """Extract the function; a text without any code block continues the prompt."""
    entry_point = tests.entry_point or None
    found = extract(task.completion, language=tests.language, entry_point=entry_point)
    bare = not found.found or found.reason is ExtractionReason.BARE_CODE
    if not bare or "```" in task.completion:
        return found
    whole = defines_function(task.completion, tests.entry_point)
    reason = ExtractionReason.BARE_CODE if whole else ExtractionReason.BODY_ONLY
    return Extraction(task.completion, reason, 0)
