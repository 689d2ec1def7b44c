"""The summary against values computed by hand, and its invariants."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.analysis.catalogue import BY_KEY, METRICS, Group, metrics_of
from shared.analysis.gate import read_policy
from shared.analysis.metrics import SampleResult, certified_metrics, run_throughput, summarize
from shared.analysis.slices import slice_summaries
from shared.analysis.statistics import wilson_interval
from shared.certificates import CertifiedTests
from shared.errors import ConfigError
from shared.schemas import ProblemFacts
from shared.statuses import FinalStatus

S = FinalStatus


def sample(problem, status, ratio=0.0, tokens=100, gen=2.0, judge=1.0, index=0):
    return SampleResult(
        problem, index, status, status is S.SUCCESS, ratio, tokens, gen, judge
    )  # fmt: skip


FOUR = [
    sample("a", S.SUCCESS, 1.0, tokens=100, gen=2.0, judge=1.0),
    sample("b", S.WRONG_ANSWER, 0.5, tokens=200, gen=4.0, judge=2.0),
    sample("c", S.TIMEOUT, 0.25, tokens=300, gen=6.0, judge=10.0),
    sample("d", S.SYNTAX_ERROR, 0.0, tokens=400, gen=8.0, judge=0.0),
]


def test_one_sample_a_problem():
    summary = summarize(FOUR, run_seconds=8.0)
    expected = {
        "total_problems": 4,
        "total_samples": 4,
        "accepted_at_1": 0.25,
        "pass_ratio_mean": 0.4375,
        "samples_cut": 0,
        "pass_ratio_p50": 0.375,
        "pass_ratio_p90": 0.85,  # rank 2.7 of 0, 0.25, 0.5, 1
        "exec_success_rate": 0.5,
        "syntax_error_rate": 0.25,
        "runtime_error_rate": 0.0,
        "timeout_rate": 0.25,
        "wrong_answer_rate": 0.25,
        "empty_output_rate": 0.0,
        "avg_total_gen_tokens": 250.0,
        "avg_gen_time": 5.0,
        "avg_total_judge_time": 3.25,
        "p95_total_judge_time": 8.8,  # rank 2.85 of 0, 1, 2, 10
        "throughput": 0.5,
        "work_seconds": 8.0,
        "cost_per_solved_tokens": 100.0,
        "cost_per_solved_judge_time": 1.0,
        "cost_per_solved_time": 3.0,
        "total_spend_per_solved_tokens": 1000.0,
        "total_spend_per_solved_judge_time": 13.0,
        "total_spend_per_solved_time": 33.0,
        "coverage": 1.0,
        "api_errors": 0,
    }
    assert {name: summary[name] for name in expected} == pytest.approx(expected)
    assert summary["accepted_at_1_bounds"] == [0.25, 0.25]
    assert summary["pass_ratio_mean_bounds"] == [0.4375, 0.4375]
    assert summary["accepted_at_1_ci95"] == pytest.approx([0.045587, 0.699358], abs=1e-6)
    assert not any(name.startswith("pass_at_") for name in summary)


def test_problems_with_many_answers_are_left_out_of_a_rate_of_its_own():
    plain, marked = summarize(FOUR, 8.0), summarize(FOUR, 8.0, {"b", "c", "elsewhere"})
    name = "accepted_at_1_single_answer"
    assert (plain[name], plain["many_answers_problems"]) == (plain["accepted_at_1"], 0)
    assert plain[f"{name}_ci95"] == plain["accepted_at_1_ci95"]
    assert (marked[name], marked["many_answers_problems"]) == (0.5, 2)
    assert marked[f"{name}_ci95"] == wilson_interval(0.5, 2)
    changed = {key for key in plain if plain[key] != marked[key]}
    assert changed == {name, f"{name}_ci95", "many_answers_problems"}
    assert summarize(FOUR, 8.0, {"a", "b", "c", "d"})[name] is None


def test_what_was_not_judged_shows_as_coverage_and_bounds():
    broken = sample("e", S.API_ERROR, tokens=None, gen=None, judge=0.0)
    summary = summarize([*FOUR, broken], run_seconds=8.0)
    judged = summarize(FOUR, run_seconds=8.0)
    changed = {name for name in summary if summary[name] != judged[name]}
    assert changed == {
        "total_problems", "total_samples", "coverage", "api_errors", "accepted_at_1_bounds"
    }  # fmt: skip
    assert (summary["coverage"], summary["api_errors"]) == (0.8, 1)
    assert summary["accepted_at_1_bounds"] == [0.2, 0.4]


def test_cases_that_were_not_run_widen_the_pass_ratio_and_nothing_else():
    cut = [*FOUR[:2], replace(FOUR[2], not_run_ratio=0.5), FOUR[3]]
    unjudged = replace(sample("e", S.API_ERROR), not_run_ratio=0.5)
    summary, exact = summarize([*cut, unjudged], 8.0), summarize([*FOUR, unjudged], 8.0)
    changed = {name for name in summary if summary[name] != exact[name]}
    assert changed == {"pass_ratio_mean_bounds", "samples_cut"}
    assert summary["pass_ratio_mean_bounds"] == [0.4375, 0.5625]
    assert summary["samples_cut"] == 1


def test_several_samples_a_problem():
    statuses = {"a": [S.SUCCESS, S.SUCCESS, S.TIMEOUT], "b": [S.SUCCESS, S.TIMEOUT, S.TIMEOUT]}
    results = [sample(p, s, index=i) for p, each in statuses.items() for i, s in enumerate(each)]
    summary = summarize(results, None)
    assert summary["pass_at_1"] == pytest.approx(0.5)
    assert summary["pass_at_2"] == pytest.approx((1 + 2 / 3) / 2)
    assert summary["pass_at_3"] == 1.0
    assert summary["total_problems"] == 2
    assert summary["total_samples"] == 6
    assert summary["avg_total_gen_tokens"] == 300.0
    assert summary["accepted_at_1_ci95"] == pytest.approx(summarize(
        [sample("a", S.SUCCESS), sample("b", S.TIMEOUT)], None)["accepted_at_1_ci95"])  # fmt: skip


@pytest.mark.parametrize("results", [[], [sample("a", S.API_ERROR)]])
def test_without_verdicts_metrics_are_none(results):
    summary = summarize(results, 10.0)
    counts = {"total_problems", "total_samples", "api_errors", "coverage", "accepted_at_1_bounds"}
    counts.add("many_answers_problems")
    counts |= {"samples_cut", "missing_modules", "truncated"}
    assert {v for name, v in summary.items() if name not in counts} == {None}


def test_what_is_not_known_is_none():
    unknown = [replace(FOUR[0], output_tokens=None, gen_time=None), *FOUR[1:]]
    summary = summarize(unknown, None)
    assert summary["avg_total_gen_tokens"] == 300.0
    for name in ("cost_per_solved_tokens", "total_spend_per_solved_tokens", "cost_per_solved_time"):
        assert summary[name] is None
    assert summary["throughput"] is None
    assert summarize(FOUR[1:], None)["cost_per_solved_tokens"] is None  # none solved


@st.composite
def runs(draw, least_samples=1):
    size = draw(st.integers(least_samples, 5))
    time = st.floats(0, 1e6)
    results = []
    for problem in range(draw(st.integers(0, 12))):
        for index in range(size):
            status = draw(st.sampled_from(S))
            ratio = 1.0 if status is S.SUCCESS else draw(st.floats(0, 0.99))
            tokens = draw(st.none() | st.integers(0, 10**6))
            results.append(
                sample(
                    str(problem), status, ratio, tokens, draw(st.none() | time), draw(time), index
                )
            )
    return results


@settings(max_examples=50)
@given(runs(), st.none() | st.floats(0, 1e9))
def test_rates_are_shares_that_add_up_and_lie_in_their_intervals(results, wall_seconds):
    summary = summarize(results, wall_seconds)
    for name, interval in summary.items():
        if name.endswith("_ci95") and interval is not None:
            low, high = interval
            assert 0 <= low <= summary[name.removesuffix("_ci95")] <= high
            assert high <= 1 or name.startswith("avg_")
    values = [v for each in summary.values() for v in (each if isinstance(each, list) else [each])]
    assert all(value is None or math.isfinite(value) for value in values)
    if any(result.judged for result in results):
        errors = ("syntax_error", "runtime_error", "timeout", "wrong_answer", "empty_output")
        total = summary["accepted_at_1"] + sum(summary[f"{error}_rate"] for error in errors)
        assert total == pytest.approx(1)
        low, high = summary["accepted_at_1_bounds"]
        assert low <= summary["accepted_at_1"] + 1e-12
        assert summary["accepted_at_1"] <= high + 1e-12


@settings(max_examples=50)
@given(runs(least_samples=2), st.randoms())
def test_pass_at_1_is_the_mean_accepted_and_pass_at_k_grows(results, random):
    judged = [result for result in results if result.judged]
    complete = [replace(r, final_status=S.TIMEOUT) if not r.judged else r for r in results]
    summary = summarize(complete, None)
    if complete:
        assert summary["pass_at_1"] == pytest.approx(summary["accepted_at_1"])
        estimates = [v for k, v in summary.items() if k.startswith("pass_at_") and "ci" not in k]
        assert estimates == sorted(estimates) or estimates == pytest.approx(sorted(estimates))
    shuffled = random.sample(judged, len(judged))
    assert summarize(shuffled, None) == summarize(judged, None)


# The catalogue of metrics


ROOT = Path(__file__).parents[3]
ONE = SampleResult("p", 0, FinalStatus.SUCCESS, True, 1.0, 100, 2.0, 1.0)


def test_every_metric_of_a_summary_is_declared_with_its_interval() -> None:
    tests = CertifiedTests(file="", sha256="", problems=1)
    found = set(summarize([ONE, replace(ONE, sample_index=1)], 1.0)) | {"run_throughput"}
    found |= set(certified_metrics([ONE], tests))
    declared = metrics_of(found)
    keys = {one.key for one in declared} | {f"{one.key}_ci95" for one in declared if one.interval}
    assert found == keys
    assert {metric.key for metric in METRICS} - {one.key for one in declared} == {"pass_at_k"}


def test_what_is_exposed_to_prometheus_is_documented() -> None:
    documented = (ROOT / "docs/aggregator-api.md").read_text()
    for metric in METRICS:
        name = metric.prometheus.partition("{")[0]
        assert f"`{name}" in documented, metric.key


def test_the_gate_takes_the_declared_costs_and_error_rates(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    for key in ("cost_per_solved_time", "throughput", "timeout_rate", "accepted_at_1"):
        one = BY_KEY[key]
        for name, group, rule in [
            ("costs", Group.COST, "{max_ratio: 1.1}"),
            ("error_rates", Group.ERROR, "{max_increase: 0.1}"),
        ]:
            file.write_text(f"default: {{{name}: {{{key}: {rule}}}}}")
            if one.group is group and one.higher_is_better is False:
                read_policy(file)
            else:
                with pytest.raises(ConfigError, match="is not one of"):
                    read_policy(file)


def test_throughput_is_over_the_time_in_which_a_set_had_work() -> None:
    spans = [(0.0, 4.0), (2.0, 5.0), (100.0, 102.0), (101.0, 101.5)]
    results = [replace(ONE, problem_id=str(n), work=span) for n, span in enumerate(spans)]
    summary = summarize(results, 1000.0)
    assert (summary["work_seconds"], summary["throughput"]) == (7.0, 4 / 7)
    # A sample may have waited for its verdict while nothing was at work.
    assert summarize([replace(ONE, work=(0.0, 90.0))], 30.0)["throughput"] == 1 / 30
    unjudged = replace(ONE, final_status=FinalStatus.API_ERROR)
    assert run_throughput([results, [ONE], [unjudged]], 10.0) == 0.5
    assert run_throughput([results], 0.0) is None


# Slices of a data set


def part_of(problem_id, status, ratio=0.0, index=0):
    return SampleResult(problem_id, index, status, status is S.SUCCESS, ratio, 1, 1.0, 1.0)


def traits(difficulty="easy", tags=(), tests=1, prompt_length=10):
    return ProblemFacts(difficulty, tuple(tags), tests, prompt_length)


def test_by_difficulty():
    results = [
        part_of("a", S.SUCCESS, 1.0),
        part_of("b", S.WRONG_ANSWER, 0.5),
        replace(part_of("c", S.TIMEOUT, 0.25), not_run_ratio=0.5),
        part_of("d", S.API_ERROR),
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
    results = [part_of("a", S.SUCCESS, 1.0), part_of("b", S.TIMEOUT), part_of("c", S.SUCCESS, 1.0)]
    infos = {"a": traits(tags=["dp", "graphs", "dp"]), "b": traits(tags=["dp"])}
    slices = slice_summaries(results, infos | {"c": traits()})["tag"]
    assert {tag: (each["n"], each["accepted_at_1"]) for tag, each in slices.items()} == {
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
    slices = slice_summaries([part_of("a", S.SUCCESS)], {"a": traits(tests=tests)})
    assert list(slices["tests"]) == [bucket]


def test_buckets_stand_in_their_own_order_and_unknown_ones_last():
    names = ["", "1500", "hard", "easy", "1200", "medium"]
    infos = {str(i): traits(name) for i, name in enumerate(names)}
    results = [part_of(str(i), S.SUCCESS) for i in range(len(names) + 1)]
    slices = slice_summaries(results, infos)
    assert list(slices["difficulty"]) == ["easy", "medium", "hard", "1200", "1500", "unknown"]
    assert slices["difficulty"]["unknown"]["n"] == 2
    assert slices["tests"]["unknown"]["n"] == 1


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(S), st.sampled_from(["easy", "hard"]))
    )
)
def test_no_sample_is_lost_but_for_tags_none_is_counted_twice(drawn):
    results = [part_of(name, status, index=i) for i, (name, status, _) in enumerate(drawn)]
    infos = {name: traits(difficulty) for name, _, difficulty in drawn if name != "d"}
    for buckets in slice_summaries(results, infos).values():
        assert sum(each["n"] + each["api_errors"] for each in buckets.values()) == len(results)
