"""SandboxFusion's data-set API: one ``/submit`` per completion with the record inline.

A problem without tests is judged by its id in a data set of the server. SandboxFusion itself
extracts the code, compares the output and accepts the answer. It does not detect early exits, its
limits are wall-clock seconds, and it does not search for the best block.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from services.judge.calls import Method, Task, single_outcome
from services.judge.programs import last_line
from services.judge.verdict import CaseOutcome, Lateness, Outcomes
from shared.errors import ConfigError
from shared.harness.sandbox_api import EvalTest, SubmitConfig, SubmitRequest
from shared.schemas import (
    GroundTruth,
    HumanEvalTests,
    ProgramTests,
    SandboxFusionTests,
    StdioTests,
)
from shared.statuses import CaseCode, JudgeMethod

# Cases of a problem whose number only the server knows, for the time that a call may take.
_MOST_CASES = 300
# Cases of one submit that SandboxFusion runs at once (its dataset.max_runner_concurrency).
_AT_ONCE = 3


class SubmitMethod(Method):
    name = JudgeMethod.SUBMIT

    def __init__(self, tests: GroundTruth) -> None:
        self.checker = "lines" if isinstance(tests, StdioTests) else "exit_code"
        self.shared_process = not isinstance(tests, StdioTests)
        self._tests = tests

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        name, config = _config(task, self._tests)
        by_id, timeout = isinstance(self._tests, SandboxFusionTests), task.limits.timeout
        config.compile_timeout = config.run_timeout = timeout
        request = SubmitRequest(
            dataset=name,  # HumanEval gets the server's own name
            id=self._tests.sandbox_id if isinstance(self._tests, SandboxFusionTests) else 0,
            completion=task.completion,
            config=config,
        )
        rounds = -(-(_MOST_CASES if by_id else self._tests.cases) // _AT_ONCE)
        # The limit applies to compiling and to running each case.
        longest = 2 * timeout * rounds
        answer = await task.sandbox.submit(request, longest, task.attempts, alone=task.alone)
        return dict(enumerate(_outcomes(answer.tests, self._tests, alone=task.alone)))


def _config(task: Task, tests: GroundTruth) -> tuple[str, SubmitConfig]:
    """Return the data set's name, which selects SandboxFusion's class, and the config."""
    problem = task.problem
    language: Any = task.settings.language
    if isinstance(tests, SandboxFusionTests):
        extra = {"is_freeform": True, "run_all_cases": True, "return_full_case": True}
        return tests.sandbox_dataset, SubmitConfig(language=language, extra=extra)
    if isinstance(tests, StdioTests):
        cases = zip(tests.inputs, tests.outputs, strict=True)
        test = [{"input": {"stdin": i}, "output": {"stdout": o}} for i, o in cases]
        return "plumbline_stdio", SubmitConfig(
            dataset_type="CommonOJDataset",
            language=language,
            extra={"run_all_cases": True},
            provided_data={"id": 0, "content": problem.prompt, "labels": {}, "test": test},
        )
    if isinstance(tests, HumanEvalTests):
        record: dict[str, Any] = {
            "task_id": problem.problem_id,
            "prompt": tests.prompt,
            "entry_point": tests.entry_point,
            "test": tests.test,
            "canonical_solution": "",
        }
        return "humaneval", SubmitConfig(extra={"is_freeform": True}, provided_data=record)
    if isinstance(tests, ProgramTests):
        raise ConfigError("the method submit cannot judge tests of MultiPL-E; use batch")
    record = {
        "id": 0,
        "content": problem.prompt,
        "labels": {"test_setup_code": tests.test_setup_code},
        "test_list": tests.test_list,
    }
    return "mbpp", SubmitConfig(provided_data=record)


def _outcomes(results: Sequence[EvalTest], tests: GroundTruth, *, alone: bool) -> list[CaseOutcome]:
    if isinstance(tests, StdioTests):
        cases = zip(results, tests.inputs, tests.outputs, strict=False)
        return [_outcome(result, stdin, expected, alone=alone) for result, stdin, expected in cases]
    if isinstance(tests, SandboxFusionTests):
        return [_of_assertion(_outcome(case, *_texts(case), alone=alone)) for case in results]
    # All statements share one run and pass or fail together; the first gets the run's time.
    ran = [_of_assertion(_outcome(result, "", "", alone=alone)) for result in results[:1]]
    rest = [replace(case, duration=0.0, lateness=Lateness.IN_TIME, compiling=None) for case in ran]
    return ran + rest * (tests.cases - 1)


def _outcome(result: EvalTest, stdin: str, expected: str, *, alone: bool) -> CaseOutcome:
    # SandboxFusion has already compared the output.
    return single_outcome(result.exec_info, stdin, expected, lambda *_: result.passed, alone=alone)


def _texts(result: EvalTest) -> tuple[str, str]:
    """Input and expected output of a case, as far as the server tells them."""
    match result.test_info:
        case {"input": {"stdin": str() as stdin}, "output": {"stdout": str() as stdout}}:
            return stdin, stdout
    return "", ""


def _of_assertion(outcome: CaseOutcome) -> CaseOutcome:
    failed = last_line(outcome.stderr).startswith("AssertionError")
    if outcome.code is CaseCode.RUNTIME_ERROR and failed:
        return replace(outcome, code=CaseCode.WRONG_ANSWER)
    return outcome
