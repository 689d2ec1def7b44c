"""Parts of a prepared problem that are searched for: its statement, its tests and its solutions."""

from collections.abc import Iterator

from services.data.contamination.index import EvalProblem
from services.data.records import Record
from shared.schemas import GroundTruth, HumanEvalTests, MbppTests, ProgramTests, StdioTests

# Inputs and outputs may have megabytes; the first ones are a problem's public tests.
_MOST_CASES = 20
_CASE_CHARACTERS = 4000
_NO_SOLUTIONS = "no solutions in the data; import or prepare them again if the source has any"
_FRAME = "The code has to pass these assertions:"


def eval_problem(record: Record) -> EvalProblem:
    """Separate the parts of a prepared problem.

    Data of an earlier version have no statement of their own; then it is the prompt without the
    tests that are quoted in it.
    """
    problem = record.problem
    tests = problem.tests
    solutions = tuple(solution.code for solution in record.solutions)
    missing = () if solutions else (_NO_SOLUTIONS,)
    return EvalProblem(
        problem.dataset,
        problem.problem_id,
        record.statement or statement_of(problem.prompt, tests),
        solutions,
        tuple(_texts(tests)),
        missing,
    )


def statement_of(prompt: str, tests: GroundTruth) -> str:
    """Remove the tests that a prompt quotes, and the sentence that announces them."""
    if not isinstance(tests, MbppTests):
        return prompt
    quoted = {line.strip() for test in tests.test_list for line in test.splitlines()}
    lines = [
        line
        for line in prompt.splitlines()
        if line.strip() not in quoted and line.strip() != _FRAME
    ]
    return "\n".join(lines).strip() or prompt


def _texts(tests: GroundTruth) -> Iterator[str]:
    """Yield the text of each test."""
    if isinstance(tests, HumanEvalTests):
        yield tests.test
    elif isinstance(tests, ProgramTests):
        yield tests.program_tests
    elif isinstance(tests, MbppTests):
        yield "\n".join(tests.test_list)
    elif isinstance(tests, StdioTests):
        pairs = zip(tests.inputs[:_MOST_CASES], tests.outputs[:_MOST_CASES], strict=True)
        for case in pairs:
            yield from (text[:_CASE_CHARACTERS] for text in case)
