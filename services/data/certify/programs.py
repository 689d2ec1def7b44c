"""Labelled programs of a problem, their judging on generated inputs, and what the verdicts show."""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, ValidationError

from services.data.certify.inputs import generated_inputs, inputs_of, text_of
from services.data.certify.mutants import NO_PYTHON, mutants, normalized
from services.data.layouts.base import Record, Solution
from services.data.records import ReferenceSolution
from shared.certificates import BadLabel, ProblemCertificate, Survivor
from shared.completions import RecordedCompletion
from shared.errors import data_error
from shared.extraction import extract, future_imports
from shared.foreign_json import parse_record, read_lines
from shared.function_plan import prelude_of, with_prompt
from shared.harness.languages import PROGRAMS
from shared.outlines import entry_point
from shared.reference import problem_digest
from shared.schemas import (
    GroundTruth,
    HumanEvalTests,
    MbppTests,
    Problem,
    ProgramTests,
    StdioTests,
    Verdict,
    describe,
)
from shared.statuses import Convention, FinalStatus
from shared.text import shorten_end, shorten_middle

_SHOWN, _CHARACTERS, _DIFFERENCE = 3, 300, 2000
# A program without code, or that does not compile, says nothing of the tests.
_NO_PROGRAM = (FinalStatus.SYNTAX_ERROR, FinalStatus.EMPTY_OUTPUT)

# Right programs of a problem that mutants are made of, and that must agree on a generated input.
ORIGINALS = 3
# CPU seconds of a mutant.
LEAST_SECONDS, MOST_SECONDS = 1.0, 10.0
# As in function tests, an answer's main guard does not run, its standard input is empty, its output
# is dropped, and an example call that reads may fail. Equal values are equal texts: numbers are
# rounded to 9 digits, sets and dictionaries sorted, blanks within texts escaped.
_DRIVER = """
import ast as _plumbline_ast, io as _plumbline_io, sys as _plumbline_sys
_plumbline_stdin, _plumbline_stdout = _plumbline_sys.stdin.read(), _plumbline_sys.stdout
_plumbline_sys.stdin, _plumbline_sys.stdout = _plumbline_io.StringIO(), _plumbline_io.StringIO()
_plumbline_sys.modules["answer"] = _plumbline_sys.modules[__name__]
__name__ = "answer"
{setup}
try:
    exec(compile({source!r}, "answer.py", "exec", dont_inherit=True))
except Exception:
    pass

def _plumbline_text(value):
    if isinstance(value, (bool, int, float)):
        number = float("%.9g" % value) if isinstance(value, float) else value
        return str(int(number)) if number == number // 1 else str(number)
    if isinstance(value, (list, tuple)):
        return {sequence} + "( " + " ".join(map(_plumbline_text, value)) + " )"
    if isinstance(value, (set, frozenset)):
        return "set( " + " ".join(sorted(map(_plumbline_text, value))) + " )"
    if isinstance(value, dict):
        pairs = sorted((_plumbline_text(k), _plumbline_text(v)) for k, v in value.items())
        return "dict( " + " ".join(k + " : " + v for k, v in pairs) + " )"
    if value is None or isinstance(value, (str, bytes, complex)):
        return repr(value).replace(" ", "\\\\x20")
    return type(value).__name__

_plumbline_given = _plumbline_ast.literal_eval(_plumbline_stdin)
_plumbline_result = {function}(*_plumbline_given)
print(_plumbline_text(_plumbline_result), file=_plumbline_stdout)
"""


class Kind(StrEnum):
    """What a program is according to its label."""

    RIGHT = "right"
    WRONG = "wrong"
    MUTANT = "mutant"
    ANSWER = "answer"
    """Without a label: wrong if generated inputs show it, otherwise unknown."""


@dataclass(frozen=True, slots=True)
class Program(ReferenceSolution):
    """A program with a label, to judge by its problem's tests.

    A mutant has the number of its original as ``parent``, and the kind of its mistake.
    """

    kind: Kind
    source: str
    parent: int | None = None
    change: str = ""


def _judged_language(name: str) -> str:
    if name not in PROGRAMS:
        raise ValueError(f"not one of {', '.join(PROGRAMS)}")
    return name


class LabelledCompletion(RecordedCompletion):
    """A line of the user's file: a completion in ``language``, and whether it is right if known."""

    correct: bool | None = None
    language: Annotated[str, AfterValidator(_judged_language)] = "python"


def read_labelled(path: str, dataset: str) -> dict[str, list[tuple[str, LabelledCompletion]]]:
    """Read a file of labelled completions, by problem, each with its place.

    Lines that name another data set are left out.

    Raises:
        DataError: The file or a line cannot be used.
    """
    by_problem: dict[str, list[tuple[str, LabelledCompletion]]] = {}
    for number, line in read_lines(path):
        place = f"{path}:{number}"
        try:
            labelled = parse_record(LabelledCompletion, place, line)
        except ValidationError as error:
            cause = f"not a labelled completion ({describe(error)}); it needs problem_id, "
            raise data_error(place, f"{cause}completion and, if known, correct") from None
        if labelled.dataset in (None, dataset):
            by_problem.setdefault(labelled.problem_id, []).append((place, labelled))
    return by_problem


def programs_of(
    record: Record,
    labelled: Sequence[tuple[str, LabelledCompletion]],
    *,
    most_mutants: int,
    seed: int,
) -> list[Program]:
    """Collect the labelled programs of a problem, and make mutants of its right Python programs.

    Programs that differ in layout and comments alone are one; the first one's label counts.
    """
    problem = record.problem
    solutions = [
        *((Kind.RIGHT, code, f"solution {n}") for n, code in enumerate(record.solutions, 1)),
        *((Kind.WRONG, code, f"incorrect solution {n}") for n, code in enumerate(record.wrong, 1)),
        *((_kind(answer), _solution(problem, answer), place) for place, answer in labelled),
    ]
    programs: dict[str, Program] = {}
    for kind, solution, source in solutions:
        if solution.code.strip():
            program = Program(problem, len(programs), solution, kind, source)
            programs.setdefault(_canonical(solution), program)
    right = (program for program in programs.values() if program.kind is Kind.RIGHT)
    originals = [program for program in right if program.solution.language == "python"][:ORIGINALS]
    for place, original in enumerate(originals):
        share = most_mutants // len(originals) + (place < most_mutants % len(originals))
        name = f"{seed}/{problem.dataset}/{problem.problem_id}/{place}"
        source = f"mutant of {original.source}"
        for mutant in mutants(original.solution.code, most=share, seed=name):
            solution, number = Solution("python", mutant.code), len(programs)
            program = Program(problem, number, solution, Kind.MUTANT, source, original.number,
                              mutant.change)  # fmt: skip
            programs.setdefault(_canonical(solution), program)
    return list(programs.values())


def _kind(labelled: LabelledCompletion) -> Kind:
    if labelled.correct is None:
        return Kind.ANSWER
    return Kind.RIGHT if labelled.correct else Kind.WRONG


def _solution(problem: Problem, labelled: LabelledCompletion) -> Solution:
    """The program in a completion."""
    tests = problem.tests
    language = tests.language if isinstance(tests, ProgramTests) else labelled.language
    answer = extract(labelled.completion, language=language, entry_point=entry_point(problem))
    code = answer.code
    if isinstance(tests, HumanEvalTests):
        code = "\n".join(reversed(with_prompt(answer, tests)))
    # A program of Go with tests is a program of Go.
    return Solution(language.removesuffix("_test"), code)


def _canonical(solution: Solution) -> str:
    text = "\n".join(line.rstrip() for line in solution.code.split("\n") if line.strip())
    if solution.language == "python":
        with suppress(*NO_PYTHON):
            text = normalized(solution.code)
    return f"{solution.language}\n{text}"


# Generated inputs


def probe(problem: Problem, *, count: int, seed: int) -> Problem | None:
    """The problem with generated inputs instead of its tests, and without expected outputs.

    Returns:
        None if its tests have no inputs that can be read.
    """
    tests = problem.tests
    name = _called(problem)
    if name is None or not isinstance(tests, StdioTests | HumanEvalTests | MbppTests):
        return None
    seeds = inputs_of(tests, name)
    values = generated_inputs(seeds, count=count, seed=f"{seed}/{problem.problem_id}")
    if not values:
        return None
    texts = [text_of(value) for value in values]
    # The outputs are read from the recorded cases; no checker can say anything yet.
    outputs = [""] * len(texts)
    generated = StdioTests(inputs=texts, outputs=outputs, convention=_convention(tests))
    return _with_tests(problem, generated)


def _convention(tests: GroundTruth) -> Convention | None:
    """What stands before a program on generated inputs: the imports that answers may rely on."""
    if not isinstance(tests, StdioTests):
        return None
    if tests.fn_name and tests.calls is Convention.VERL:
        return Convention.LIVECODEBENCH  # verl's imports, which stand before calls alone
    return tests.calls if tests.fn_name else tests.convention


def _called(problem: Problem) -> str | None:
    """The function that the tests call; empty for standard input, None if they name several."""
    tests = problem.tests
    return tests.fn_name or "" if isinstance(tests, StdioTests) else entry_point(problem)


def with_outputs(problem: Problem, outputs: Mapping[str, str]) -> Problem:
    """The problem with these inputs and outputs as tests, compared as the problem's own are."""
    tests, inputs, expected = problem.tests, list(outputs), list(outputs.values())
    if isinstance(tests, StdioTests) and not tests.fn_name:
        same = tests.model_copy(update={"inputs": inputs, "outputs": expected})
        return _with_tests(problem, same)
    generated = StdioTests(
        inputs=inputs, outputs=expected, checker="tokens", convention=_convention(tests)
    )
    return _with_tests(problem, generated)


def with_time_limit(problem: Problem, seconds: float) -> Problem:
    """The problem with a limit of CPU seconds, at least a second, where it has no lower one."""
    info = problem.info
    limit = min(max(LEAST_SECONDS, seconds), info.time_limit or MOST_SECONDS)
    limited = info.model_copy(update={"time_limit": limit})
    return problem.model_copy(update={"extra_info": limited.model_dump_json()})


def _with_tests(problem: Problem, tests: StdioTests) -> Problem:
    # Not a ``model_copy``, which would keep the parsed tests.
    return Problem(**{**problem.model_dump(), "ground_truth": tests.model_dump_json()})


def on_inputs(program: Program, problem: Problem) -> Program:
    """The program in a form to judge by generated inputs, which ``problem`` has."""
    own, solution = program.problem, program.solution
    if name := _called(own):
        method = isinstance(own.tests, StdioTests) and "class Solution" in solution.code
        function = f"Solution().{name}" if method else name
        setup = prelude_of(own.tests) if isinstance(own.tests, MbppTests) else ""
        # Results that are compared as JSON have no tuples.
        as_json = isinstance(own.tests, StdioTests)
        sequence = "'list'" if as_json else "type(value).__name__"
        futures, rest = future_imports(solution.code)
        source = "\n".join([*futures, rest])
        code = _DRIVER.format(function=function, sequence=sequence, setup=setup, source=source)
        solution = Solution("python", code)
    return replace(program, problem=problem, solution=solution)


def agreed_outputs(outputs: Iterable[Mapping[str, str]], *, one_answer: bool) -> Mapping[str, str]:
    """The inputs on which programs print the same, with what the first one prints.

    Args:
        outputs: What each program prints by input; inputs on which it fails are missing.
        one_answer: Whether only one output is right; with a checker others may be.
    """
    first, *others = outputs
    return {
        text: printed
        for text, printed in first.items()
        if all(
            text in other and (not one_answer or other[text].split() == printed.split())
            for other in others
        )
    }


# Certificates from the verdicts


@dataclass(slots=True)
class Evidence:
    """Verdicts on the programs of one problem, by their numbers.

    Attributes:
        problem: The problem.
        programs: Its labelled programs.
        own: Verdicts of the problem's tests.
        generated: Verdicts of generated inputs, of the programs that were judged by them.
        originals: Accepted programs that agreed on these inputs.
        inputs: The number of the inputs.
    """

    problem: Problem
    programs: Sequence[Program]
    own: dict[int, Verdict] = field(default_factory=dict)
    generated: dict[int, Verdict] = field(default_factory=dict)
    originals: int = 0
    inputs: int = 0

    def accepted(self) -> list[Program]:
        """The programs that the problem's tests accept."""
        verdicts = ((program, self.own.get(program.number)) for program in self.programs)
        return [program for program, verdict in verdicts if verdict and verdict.accepted]

    def is_open(self, program: Program) -> bool:
        """Whether the problem's own tests leave open if a program is right.

        They accept a wrong one or reject a right one; their verdict on other programs is believed.
        """
        verdict = self.own.get(program.number)
        if verdict is None or not verdict.judged:
            return False
        return program.kind is Kind.ANSWER or verdict.accepted is not (program.kind is Kind.RIGHT)


def certify_problem(evidence: Evidence) -> ProblemCertificate:
    """Count the programs, and list the wrong ones that the tests accept."""
    counts: Counter[str] = Counter()
    survivors: list[Survivor] = []
    bad: list[BadLabel] = []
    by_number = {program.number: program for program in evidence.programs}
    for program in evidence.programs:
        verdict = evidence.own.get(program.number)
        if verdict is None or not verdict.judged:
            continue
        end = "accepted" if verdict.accepted else "rejected"
        generated = evidence.generated.get(program.number)
        if program.kind is Kind.RIGHT:
            # A program that does on generated inputs what accepted programs do is right.
            if verdict.accepted or (generated is not None and generated.accepted):
                counts[f"right_{end}"] += 1
            else:
                passed = f"{verdict.cases_passed} of {verdict.cases_total} tests passed"
                reason = f"{verdict.final_status}, {passed}"
                bad.append(BadLabel(source=program.source, reason=reason))
        elif verdict.final_status in _NO_PROGRAM or not _is_known(program, evidence):
            continue
        elif not _is_wrong(program, verdict, generated):
            counts["unknown"] += 1
        else:
            if verdict.accepted:
                survivors.append(_survivor(program, by_number, generated))
            counts[f"wrong_{end}"] += 1
            counts[f"submitted_{end}"] += program.kind is not Kind.MUTANT
    return ProblemCertificate(
        problem_id=evidence.problem.problem_id,
        digest=problem_digest(evidence.problem),
        originals=evidence.originals,
        inputs=evidence.inputs,
        survivors=survivors[:_SHOWN],
        bad_labels=bad,
        **counts,
    )


def _is_known(program: Program, evidence: Evidence) -> bool:
    """Whether a program has a label: a mutant has one if its original is accepted."""
    if program.parent is None:
        return True
    original = evidence.own.get(program.parent)
    return original is not None and original.accepted


def _is_wrong(program: Program, own: Verdict, generated: Verdict | None) -> bool:
    """Whether a program is known to be wrong: by its label, or by a test that shows it.

    The problem's own tests show it of a mutant, but not of an answer: they may reject a right one.
    """
    shown = generated is not None and not generated.accepted
    rejected = program.kind is Kind.MUTANT and not own.accepted
    return program.kind is Kind.WRONG or shown or rejected


def _survivor(program: Program, programs: Mapping[int, Program], shown: Verdict | None) -> Survivor:
    case = None if shown is None else shown.first_failed_case
    difference = ""
    if program.parent is not None:
        before = normalized(programs[program.parent].solution.code).split("\n")
        after = program.solution.code.split("\n")
        lines = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
        difference = shorten_middle("\n".join(lines), _DIFFERENCE)
    return Survivor(
        source=program.source,
        change=program.change,
        difference=difference,
        input=_shown(case.input) if case else None,
        expected=_shown(case.expected) if case else None,
        actual=_shown(case.actual or case.stderr or case.status) if case else None,
    )


def _shown(text: str | None) -> str | None:
    return None if text is None else shorten_end(text.strip(), _CHARACTERS)
