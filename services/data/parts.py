"""Parts of a prepared problem that are searched for: its statement, its tests and its solutions."""

from collections.abc import Iterator

from services.data.contamination.index import EvalProblem
from services.data.records import Record, statement_of
from shared.schemas import GroundTruth, HumanEvalTests, MbppTests, ProgramTests, StdioTests

# Inputs and outputs may have megabytes; the first ones are a problem's public tests.
_MOST_CASES = 20
_CASE_CHARACTERS = 4000
_NO_SOLUTIONS = "no solutions in the data; import or prepare them again if the source has any"


def eval_problem(record: Record) -> EvalProblem:
    """Separate the parts of a prepared problem."""
    problem = record.problem
    solutions = tuple(solution.code for solution in record.solutions)
    missing = () if solutions else (_NO_SOLUTIONS,)
    return EvalProblem(
        problem.dataset,
        problem.problem_id,
        statement_of(record),
        solutions,
        tuple(_texts(problem.tests)),
        missing,
    )


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
