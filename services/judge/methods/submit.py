"""SandboxFusion's data-set API: one ``/submit`` per completion with the record inline.

SandboxFusion itself extracts the code, compares the output and accepts the answer. It does not
detect early exits, its limits are wall-clock seconds, and it does not search for the best block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from services.judge.calls import single_outcome
from services.judge.methods.base import Method, Task
from services.judge.programs import last_line
from services.judge.requests import Submit
from services.judge.verdict import CaseOutcome, Lateness, Outcomes
from shared.errors import ConfigError
from shared.schemas import GroundTruth, HumanEvalTests, ProgramTests, StdioTests
from shared.statuses import CaseCode, JudgeMethod

if TYPE_CHECKING:
    from sandbox_fusion.models import EvalResult, EvalTestCase


class SubmitMethod(Method):
    name = JudgeMethod.SUBMIT

    def __init__(self, tests: GroundTruth) -> None:
        self.checker = "lines" if isinstance(tests, StdioTests) else "exit_code"
        self.shared_process = not isinstance(tests, StdioTests)
        self._tests = tests

    async def run_cases(self, task: Task, cases: Sequence[int]) -> Outcomes:
        response = await _submit(task, self._tests)
        return dict(enumerate(_outcomes(response.tests, self._tests, alone=task.alone)))


async def _submit(task: Task, tests: GroundTruth) -> "EvalResult":
    name, record, config = _record(task, tests)
    config |= {
        "provided_data": record,
        "compile_timeout": task.limits.timeout,
        "run_timeout": task.limits.timeout,
    }
    request = Submit(
        dataset=name,
        completion=task.completion,
        config=config,
        cases=tests.cases,
        timeout=task.limits.timeout,
    )
    return await task.sandbox.submit(request, task.attempts, alone=task.alone)


def _record(task: Task, tests: GroundTruth) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the data set name that selects SandboxFusion's class, the record, and the config."""
    problem = task.problem
    if isinstance(tests, StdioTests):
        cases = zip(tests.inputs, tests.outputs, strict=True)
        test = [{"input": {"stdin": i}, "output": {"stdout": o}} for i, o in cases]
        record = {"id": 0, "content": problem.prompt, "labels": {}, "test": test}
        config: Mapping[str, Any] = {
            "dataset_type": "CommonOJDataset",
            "language": task.settings.language,
            "extra": {"run_all_cases": True},
        }
        return "plumbline_stdio", record, dict(config)
    if isinstance(tests, HumanEvalTests):
        record = {
            "task_id": problem.problem_id,
            "prompt": tests.prompt,
            "entry_point": tests.entry_point,
            "test": tests.test,
            "canonical_solution": "",
        }
        # SandboxFusion calls the tests only for this name and its variants.
        return "humaneval_python", record, {"extra": {"is_freeform": True}}
    if isinstance(tests, ProgramTests):
        raise ConfigError("the method submit cannot judge tests of MultiPL-E; use batch")
    record = {
        "id": 0,
        "content": problem.prompt,
        "labels": {"test_setup_code": tests.test_setup_code},
        "test_list": tests.test_list,
    }
    return "mbpp", record, {}


def _outcomes(
    results: Sequence["EvalTestCase"], tests: GroundTruth, *, alone: bool
) -> list[CaseOutcome]:
    if isinstance(tests, StdioTests):
        cases = zip(results, tests.inputs, tests.outputs, strict=False)
        return [_outcome(result, stdin, expected, alone=alone) for result, stdin, expected in cases]
    # All statements share one run and pass or fail together; the first gets the run's time.
    ran = [_of_assertion(_outcome(result, "", "", alone=alone)) for result in results[:1]]
    rest = [replace(case, duration=0.0, lateness=Lateness.IN_TIME, compiling=None) for case in ran]
    return ran + rest * (tests.cases - 1)


def _outcome(result: "EvalTestCase", stdin: str, expected: str, *, alone: bool) -> CaseOutcome:
    # SandboxFusion has already compared the output.
    return single_outcome(result.exec_info, stdin, expected, lambda *_: result.passed, alone=alone)


def _of_assertion(outcome: CaseOutcome) -> CaseOutcome:
    failed = last_line(outcome.stderr).startswith("AssertionError")
    if outcome.code is CaseCode.RUNTIME_ERROR and failed:
        return replace(outcome, code=CaseCode.WRONG_ANSWER)
    return outcome
