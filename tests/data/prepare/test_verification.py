"""Findings from reference solutions that are judged."""

import json
from pathlib import Path

import pytest

from services.data.layouts.base import Solution
from services.data.prepare.verification import disagreements
from services.data.records import ReferenceSolution
from shared.schemas import FailedCase, QualityFinding, SampleId
from shared.statuses import FinalStatus
from tests.data.prepare.support import row
from tests.shared.ledgers import generation, problem, verdict

CHECKER = "def check(input, output, expected):\n    return True\n"


def wrong(number, printed, *, case=0, passed=0, status=FinalStatus.WRONG_ANSWER):
    failed = FailedCase(case_index=case, status=status, expected="1 2\n", actual=printed)
    sample = generation(SampleId("d1", "p1", number - 1))
    return verdict(sample, status, cases_passed=passed, first_failed_case=failed)


def solutions(count, **truth):
    ground_truth = {"inputs": ["1", "2"], "outputs": ["1 2", "3"], **truth}
    one = problem(ground_truth=json.dumps(ground_truth))
    return [ReferenceSolution(one, n, Solution("python", "x")) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "rejected", "reason"),
    [
        (2, [wrong(2, "2 1")], 'solution 2 prints "2 1" where test 1 expects "1 2", as solution 1'),
        (2, [wrong(1, "2 1"), wrong(2, "1  3")], 'and solution 2 prints "1 3"'),
        (1, [wrong(1, "2 1", passed=1, case=1)], 'prints "2 1" where test 2 expects "1 2"'),
        (1, [wrong(1, "x" * 500, passed=1)], "…"),
    ],
)
def test_solutions_that_disagree(count, rejected, reason):
    (entry,) = disagreements(solutions(count), rejected)
    assert (entry.problem_id, entry.finding) == ("p1", QualityFinding.MANY_ANSWERS)
    assert reason in entry.reason


@pytest.mark.parametrize(
    "rejected",
    [
        [],
        [wrong(1, "no")],  # passes nothing, and nothing speaks for it
        [wrong(1, "no"), wrong(2, " no\n")],
        [wrong(1, "2 1", status=FinalStatus.TIMEOUT, passed=1)],
        [wrong(1, "2 1", status=FinalStatus.RUNTIME_ERROR, passed=1)],
    ],
)
def test_solutions_that_show_nothing(rejected):
    assert list(disagreements(solutions(max(1, len(rejected))), rejected)) == []


def test_findings_are_published(desk):
    broken = {"inputs": ["1"], "outputs": ["1"], "checker_source": CHECKER}
    solved = [
        row(0, reference_solution="print(3)"),
        row(1, reference_solution="print(4)"),
        row(2, ground_truth=broken, reference_solution="print(1)"),
    ]
    desk.source("one", solved)

    def verifier(given):
        reason = "the problem's checker failed: crashes: exit code 9"
        status = FinalStatus.WRONG_ANSWER
        failed = FailedCase(case_index=0, status=status, expected="3", actual="4")
        first, second = (generation(SampleId("one", name)) for name in ("p1", "p2"))
        return [
            verdict(first, status, cases_passed=1, cases_total=2, first_failed_case=failed),
            verdict(second, FinalStatus.API_ERROR, detail=reason),
        ]

    prepared = desk.prepare(verifier=verifier)
    assert [line["quality"] for line in desk.listed("one")] == [
        "ok", "rejected_solution,many_answers", "broken_checker",
    ]  # fmt: skip
    assert [
        (one["problem_id"], one["finding"], one["reason"]) for one in desk.listed("quality_one")
    ] == [
        ("p1", "rejected_solution", "solution 1: wrong_answer, 1 of 2 tests passed"),
        ("p2", "broken_checker", "the problem's checker failed: crashes: exit code 9"),
        ("p1", "many_answers", 'solution 1 prints "4" where test 1 expects "3"'),
    ]
    report = Path(prepared.report).read_text()
    assert "many answers" in report
    assert "broken checker" in report


def test_a_checker_that_does_not_compile_is_found_without_running_anything(desk):
    truth = {"inputs": ["1"], "outputs": ["1"]}
    desk.source("one", [row(2, ground_truth={**truth, "checker_source": "def check("}), row(3)])
    desk.prepare()
    assert [line["quality"] for line in desk.listed("one")] == ["broken_checker", "ok"]
    (broken,) = desk.listed("quality_one")
    assert broken["reason"].startswith("the checker does not compile: SyntaxError")
