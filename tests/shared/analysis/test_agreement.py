"""Disagreements of two judging methods."""

from shared.analysis.agreement import CaseDisagreement, compare_methods
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.shared.ledgers import generation, verdict

S = FinalStatus


def judged(problem, status, codes):
    fields = {"case_codes": codes, "cases_not_run": codes.count(-5)}
    return verdict(generation(SampleId("one", problem, 0)), status, **fields)


def test_cases_that_one_method_did_not_run_are_not_compared():
    first = [
        judged("p1", S.TIMEOUT, [1, -3, -5, -5]),
        judged("p2", S.TIMEOUT, [1, -3, -5, -5]),
        judged("p3", S.TIMEOUT, [1, -3, -5, -5]),
    ]
    second = [
        judged("p1", S.RUNTIME_ERROR, [1, -3, -2, 1]),
        judged("p2", S.WRONG_ANSWER, [1, 0, 0, 1]),
        judged("p3", S.SUCCESS, [1, -3, 1, 1]),
    ]
    found = compare_methods(("batch", "compute_score"), first, second)
    two, three = found.disagreements
    assert (two.problem_id, two.cases) == ("p2", [CaseDisagreement(1, -3, 0)])
    assert (three.problem_id, three.on_acceptance) == ("p3", True)
    assert three.first.cases_not_run == 2


def test_status_and_case_codes_have_to_be_equal():
    first = [
        judged("p1", S.SUCCESS, [1, 1]),
        judged("p2", S.SUCCESS, [1, 1]),
        judged("p3", S.WRONG_ANSWER, [0, 1, 0]),
        judged("p4", S.SUCCESS, [1]),
    ]
    second = [
        judged("p3", S.WRONG_ANSWER, [0, 0]),
        judged("p2", S.TIMEOUT, [1, -3]),
        judged("p1", S.SUCCESS, [1, 1]),
        judged("p5", S.SUCCESS, [1]),
    ]
    found = compare_methods(("batch", "submit"), first, second)
    assert (found.methods, found.samples, found.agreeing) == (("batch", "submit"), 3, 1)
    two, three = found.disagreements
    assert (two.problem_id, two.on_acceptance) == ("p2", True)
    assert (two.first.final_status, two.second.final_status) == (S.SUCCESS, S.TIMEOUT)
    assert two.cases == [CaseDisagreement(1, 1, -3)]
    assert (three.problem_id, three.on_acceptance) == ("p3", False)
    assert three.cases == [CaseDisagreement(1, 1, 0), CaseDisagreement(2, 0, None)]
