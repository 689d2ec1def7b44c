"""Slices of a data set."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.analysis.metrics import SampleResult
from shared.analysis.slices import slice_summaries
from shared.analysis.statistics import wilson_interval
from shared.schemas import ProblemFacts
from shared.statuses import FinalStatus

S = FinalStatus


def sample(problem_id, status, ratio=0.0, index=0):
    return SampleResult(problem_id, index, status, status is S.SUCCESS, ratio, 1, 1.0, 1.0)


def traits(difficulty="easy", tags=(), tests=1, prompt_length=10):
    return ProblemFacts(difficulty, tuple(tags), tests, prompt_length)


def test_by_difficulty():
    results = [
        sample("a", S.SUCCESS, 1.0),
        sample("b", S.WRONG_ANSWER, 0.5),
        replace(sample("c", S.TIMEOUT, 0.25), not_run_ratio=0.5),
        sample("d", S.API_ERROR),
    ]
    infos = {"a": traits("hard"), "b": traits("hard"), "c": traits("easy"), "d": traits("easy")}
    assert slice_summaries(results, infos)["difficulty"] == {
        "easy": {
            "n": 1,
            "problems": 1,
            "accepted_at_1": 0.0,
            "accepted_at_1_ci95": wilson_interval(0.0, 1),
            "pass_ratio_mean": 0.25,
            "pass_ratio_mean_bounds": [0.25, 0.75],
            "samples_cut": 1,
            "api_errors": 1,
        },
        "hard": {
            "n": 2,
            "problems": 2,
            "accepted_at_1": 0.5,
            "accepted_at_1_ci95": wilson_interval(0.5, 2),
            "pass_ratio_mean": 0.75,
            "pass_ratio_mean_bounds": [0.75, 0.75],
            "samples_cut": 0,
            "api_errors": 0,
        },
    }


def test_a_problem_counts_for_each_of_its_tags():
    results = [sample("a", S.SUCCESS, 1.0), sample("b", S.TIMEOUT), sample("c", S.SUCCESS, 1.0)]
    infos = {"a": traits(tags=["dp", "graphs", "dp"]), "b": traits(tags=["dp"])}
    found = slice_summaries(results, infos | {"c": traits()})["tag"]
    assert {tag: (each["n"], each["accepted_at_1"]) for tag, each in found.items()} == {
        "dp": (2, 0.5),
        "graphs": (1, 1.0),
        "untagged": (1, 1.0),
    }


@pytest.mark.parametrize(
    ("tests", "bucket"),
    [(1, "1"), (2, "2-5"), (5, "2-5"), (6, "6-20"), (20, "6-20"), (21, "21-100"), (100, "21-100"),
     (101, ">100")],
)  # fmt: skip
def test_numbers_of_tests(tests, bucket):
    found = slice_summaries([sample("a", S.SUCCESS)], {"a": traits(tests=tests)})
    assert list(found["tests"]) == [bucket]


def test_buckets_stand_in_their_own_order_and_unknown_ones_last():
    names = ["", "1500", "hard", "easy", "1200", "medium"]
    infos = {str(i): traits(name) for i, name in enumerate(names)}
    results = [sample(str(i), S.SUCCESS) for i in range(len(names) + 1)]
    found = slice_summaries(results, infos)
    assert list(found["difficulty"]) == ["easy", "medium", "hard", "1200", "1500", "unknown"]
    assert found["difficulty"]["unknown"]["n"] == 2
    assert found["tests"]["unknown"]["n"] == 1


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(S), st.sampled_from(["easy", "hard"]))
    )
)
def test_no_sample_is_lost_but_for_tags_none_is_counted_twice(drawn):
    results = [sample(name, status, index=i) for i, (name, status, _) in enumerate(drawn)]
    infos = {name: traits(difficulty) for name, _, difficulty in drawn if name != "d"}
    for buckets in slice_summaries(results, infos).values():
        assert sum(each["n"] + each["api_errors"] for each in buckets.values()) == len(results)
