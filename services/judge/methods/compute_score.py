"""Standard input and output, one ``/run_code`` per test case, by verl's rules.

The rules are those of ``verl.utils.reward_score.sandbox_fusion`` 0.9.1: which code is taken from
the completion, how output is compared (equal but for trailing newlines), the result codes, and that
a compile error in one case holds for all later ones. The number of passing cases is what a GRPO
reward would be computed from. Beyond verl's rules, which know no syntax error in Python (there it
is a runtime error), the sample's final status says ``syntax_error`` where the interpreter could not
compile the program; the cases keep verl's code. And a time-out, which is a matter of wall-clock
time here, counts only if it happens again with the sandbox to itself.
"""

from services.judge import calls
from services.judge.methods import function_tests, verl_native
from services.judge.methods.base import Task
from services.judge.methods.call_wrapper import wrap_call
from services.judge.methods.cases import is_syntax_error, single_outcome
from services.judge.outcome import CaseOutcome, Judgement
from shared.checkers import exact
from shared.extraction import extract_verl
from shared.schemas import StdioTests
from shared.statuses import CaseCode, FinalStatus

NAME = "compute_score"
CHECKER = "exact"


async def judge(task: Task) -> Judgement:
    tests = task.problem.tests
    if not isinstance(tests, StdioTests):
        return await function_tests.judge_by_itself(task, tests)
    if task.settings.verl_native:
        async with task.sandbox.pool.permit(exclusive=task.alone) as permit:
            return await verl_native.judge(permit.url, task, tests)
    extraction = extract_verl(task.completion)
    if not extraction.found:
        return Judgement(
            NAME, CHECKER, tests.cases, status=FinalStatus.SYNTAX_ERROR, detail=extraction.reason
        )
    # verl puts two newlines between the program and an (absent) assert statement.
    program = extraction.code + "\n\n"
    if tests.fn_name:
        program = wrap_call(program, tests.fn_name)
    return await _judge(task, program, tests)


async def _judge(task: Task, program: str, tests: StdioTests) -> Judgement:
    cases = await _run(task, program, tests, list(range(tests.cases)))
    late = [place for place, case in cases.items() if case.code is CaseCode.TIMEOUT]
    if not task.settings.confirm_timeouts:
        late = []
    again = await _run(task.by_itself(), program, tests, late)
    flipped = sum(case.code is not CaseCode.TIMEOUT for case in again.values())
    cases |= again
    ordered = _spread_compile_error([cases[place] for place in range(tests.cases)])
    status = FinalStatus.SYNTAX_ERROR if all(map(is_syntax_error, ordered)) else None
    return Judgement(
        NAME, CHECKER, tests.cases, ordered, status, confirmed=len(late), flipped=flipped
    )


async def _run(
    task: Task, program: str, tests: StdioTests, places: list[int]
) -> dict[int, CaseOutcome]:
    responses = await calls.run_singles(task, program, tests.inputs, places)
    return {
        place: single_outcome(response, tests.inputs[place], tests.outputs[place], exact)
        for place, response in responses.items()
    }


def _spread_compile_error(cases: list[CaseOutcome]) -> list[CaseOutcome]:
    codes = [case.code for case in cases]
    if CaseCode.COMPILE_ERROR not in codes:
        return cases
    first = codes.index(CaseCode.COMPILE_ERROR)
    rest = [
        CaseOutcome(CaseCode.COMPILE_ERROR, c.duration, c.detail, c.input, c.expected)
        for c in cases[first + 1 :]
    ]
    return [*cases[: first + 1], *rest]
