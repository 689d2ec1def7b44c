"""Certificates of problems from the verdicts on their labelled programs."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.data.certify.mutants import normalized
from services.data.certify.programs import Kind, Program
from shared.certificates import BadLabel, ProblemCertificate, Survivor
from shared.reference import problem_digest
from shared.schemas import Problem, Verdict
from shared.statuses import FinalStatus
from shared.text import shorten_end, shorten_middle

_SHOWN, _CHARACTERS, _DIFFERENCE = 3, 300, 2000
# A program without code, or that does not compile, says nothing of the tests.
_NO_PROGRAM = (FinalStatus.SYNTAX_ERROR, FinalStatus.EMPTY_OUTPUT)


@dataclass(frozen=True, slots=True)
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
    own: Mapping[int, Verdict]
    generated: Mapping[int, Verdict] = field(default_factory=dict)
    originals: int = 0
    inputs: int = 0


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
