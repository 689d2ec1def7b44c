"""verl's reward scoring: one ``/run_code`` per test case by verl's rules.

The rules are those of ``verl.utils.reward_score.sandbox_fusion`` 0.9.1: code extraction, output
comparison (equal except for trailing newlines), result codes, and that a compile error in one case
applies to all later ones. A GRPO reward would be computed from the number of passing cases. verl
has no syntax error for Python and reports a runtime error instead; the cases keep verl's code, and
the sample's final status is ``syntax_error`` if the interpreter could not compile the program.
Limits are wall-clock seconds.
"""

from collections.abc import Sequence

from services.judge import calls
from services.judge.methods.base import Method, Task
from services.judge.programs import wrap_call
from services.judge.verdict import Outcomes
from shared.checkers import exact
from shared.extraction import extract_verl
from shared.schemas import StdioTests
from shared.statuses import JudgeMethod


class ComputeScoreMethod(Method):
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
