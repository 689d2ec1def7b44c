import pytest

from shared.run_record import RunPlan, make_plan
from shared.schemas import Problem, SampleId
from tests.shared.ledgers import problem

PROBLEMS = [problem("b", "d1"), problem("x", "d2"), problem("a", "d1")]


def plan_of(problems: list[Problem], n: int = 1) -> RunPlan:
    return make_plan(problems, lambda _problem: range(n))


def test_data_sets_and_problems_keep_their_order() -> None:
    plan = plan_of(PROBLEMS, 2)
    assert [d.name for d in plan.datasets] == ["d1", "d2"]
    assert plan.samples() == [
        SampleId("d1", "b", 0),
        SampleId("d1", "b", 1),
        SampleId("d1", "a", 0),
        SampleId("d1", "a", 1),
        SampleId("d2", "x", 0),
        SampleId("d2", "x", 1),
    ]


def test_a_problem_gets_the_samples_it_is_given() -> None:
    plan = make_plan(PROBLEMS, lambda p: {"b": [3], "x": [0, 5], "a": []}[p.problem_id])
    assert plan.samples() == [
        SampleId("d1", "b", 3),
        SampleId("d2", "x", 0),
        SampleId("d2", "x", 5),
    ]
    assert [(d.problems, len(d.owed)) for d in plan.datasets] == [(2, 1), (1, 2)]


@pytest.mark.parametrize(
    "other",
    [
        plan_of(PROBLEMS, 2),
        plan_of(PROBLEMS[:2]),
        plan_of([PROBLEMS[2], *PROBLEMS[:2]]),
        plan_of([problem("b", "d1", prompt="another"), *PROBLEMS[1:]]),
        plan_of([problem("b", "d3"), *PROBLEMS[1:]]),
        plan_of(
            [problem("b", "d1", ground_truth='{"inputs": ["2"], "outputs": ["2"]}'), *PROBLEMS[1:]]
        ),
    ],
    ids=["more samples", "fewer problems", "other order", "prompt", "data set", "tests"],
)
def test_the_fingerprint_tells_plans_apart(other: RunPlan) -> None:
    assert other.fingerprint() != plan_of(PROBLEMS).fingerprint()


def test_a_lone_surrogate_in_a_prompt_counts_as_it_is() -> None:
    assert plan_of([problem(prompt="\ud800")]).datasets[0].sha256
