"""Rules of the release gate, and policy files."""

from pathlib import Path

import pytest

from shared.analysis.compare import compare_runs
from shared.analysis.gate import Outcome, Policy, evaluate, read_policy
from shared.analysis.runs import read_runs
from shared.errors import ConfigError
from tests.shared.finished_runs import write_run

ROOT = Path(__file__).resolve().parents[3]
HALF = "+-" * 100
# Of 200 problems ten are lost (5 points): the interval is -9.0 … -1.9.
TEN_LOST = "--" * 10 + "+-" * 90


def rule(name, **limits):
    return {"default": {name: limits}}


@pytest.fixture(scope="module")
def ten_lost(tmp_path_factory):
    """A run that lost ten problems and costs half as much again, beside the one before."""
    folder = tmp_path_factory.mktemp("runs")
    first = write_run(folder / "a", {"one": HALF}, summary={"avg_total_gen_tokens": 100.0})
    second = write_run(folder / "b", {"one": TEN_LOST}, summary={"avg_total_gen_tokens": 150.0})
    return compare_runs(*read_runs([first, second]))


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (rule("error_rates", wrong_answer_rate={"max_increase": 0.1}), Outcome.PASS),
        (rule("error_rates", wrong_answer_rate={"max_increase": 0.01}), Outcome.FAIL),
        (rule("error_rates", wrong_answer_rate={"max_increase": 0.05}), Outcome.UNDECIDED),
        (
            rule("error_rates", timeout_rate={"max_increase": 0, "confidence": "point"}),
            Outcome.PASS,
        ),
        (rule("pass_ratio_mean", min_difference=-0.02, confidence="point"), Outcome.FAIL),
        ({"default": {"max_new_failures": 10}}, Outcome.PASS),
        ({"default": {"max_new_failures": 9}}, Outcome.FAIL),
        ({"default": {"min_problems": 201}}, Outcome.UNDECIDED),
        (rule("costs", avg_total_gen_tokens={"max_ratio": 1.5}), Outcome.PASS),
        (rule("costs", avg_total_gen_tokens={"max_ratio": 1.4}), Outcome.FAIL),
        (rule("costs", avg_total_gen_tokens={"max_value": 149}), Outcome.FAIL),
        (rule("costs", avg_gen_time={"max_value": 149}), Outcome.UNDECIDED),
    ],
)
def test_each_rule(ten_lost, policy, outcome):
    report = evaluate(Policy.model_validate(policy), ten_lost)
    assert report.outcome is outcome
    assert [each.rule for each in report.findings if each.outcome is not Outcome.PASS] == (
        [] if outcome is Outcome.PASS else [report.findings[-1].rule]
    )


def test_the_shipped_policy_lets_an_equal_run_of_the_baselines_sizes_go(tmp_path):
    sizes = {"codecontests_valid": 117, "codecontests_test": 165, "humaneval": 164, "mbpp_reg": 200}
    answers = {name: ("+-" * size)[:size] for name, size in sizes.items()}
    costs = {"avg_total_gen_tokens": 100.0, "total_spend_per_solved_tokens": 200.0}
    runs = [write_run(tmp_path / name, answers, summary=costs) for name in ("a", "b")]
    policy = read_policy(ROOT / "configs" / "gate.yaml")
    assert evaluate(policy, compare_runs(*read_runs(runs))).outcome is Outcome.PASS


def test_runs_over_different_data_or_in_doubt_are_undecided(tmp_path):
    first = write_run(tmp_path / "a", {"one": "+-+"}, digests={"one": "abc"})
    part = {"datasets.0.sha256": "zz"}
    second = write_run(tmp_path / "b", {"one": "+-"}, digests={"one": "ab"}, change=part)
    third = write_run(tmp_path / "c", {"one": "+-+"}, change={"prompts": None})
    policy = Policy.model_validate({"default": {"max_new_failures": 10}})
    for other, found in ((second, "2 are the same"), (third, "not recorded in B")):
        report = evaluate(policy, compare_runs(*read_runs([first, other])))
        assert report.outcome is Outcome.UNDECIDED
        assert report.findings[0].found.endswith(found)


PASS_RATIO_RULES = [
    (-0.25, "point", Outcome.PASS),
    (-0.2, "point", Outcome.UNDECIDED),
    (0.25, "point", Outcome.UNDECIDED),
    (0.3, "point", Outcome.FAIL),
    (-0.4, "interval", Outcome.PASS),
    (-0.25, "interval", Outcome.UNDECIDED),
]


def test_cases_that_were_not_run_leave_a_pass_ratio_undecided(tmp_path):
    """Every second answer of both runs lacks half of its cases: the difference is 0 ± 0.25."""
    runs = [write_run(tmp_path / name, {"one": "+t" * 100}, cases_not_run=0) for name in ("a", "b")]
    for run in runs:
        path = Path(run) / "verdicts.jsonl"
        lines = path.read_text().splitlines()
        text = [
            line.replace('"cases_not_run":0', f'"cases_not_run":{place % 2}')
            for place, line in enumerate(lines)
        ]
        path.write_text("\n".join(text) + "\n")
    compared = compare_runs(*read_runs(runs))
    (one,) = compared.datasets
    assert one.samples_cut == 100
    assert one.pass_ratio_mean.difference == 0
    assert one.pass_ratio_bounds is not None
    bounds = one.pass_ratio_bounds
    assert (bounds.worst.difference, bounds.best.difference) == (-0.25, 0.25)
    for least, confidence, outcome in PASS_RATIO_RULES:
        policy = rule("pass_ratio_mean", min_difference=least, confidence=confidence)
        found = evaluate(Policy.model_validate(policy), compared).outcome
        assert found is outcome, (least, confidence)
    policy = rule("accepted_at_1", min_difference=-0.1)
    assert evaluate(Policy.model_validate(policy), compared).outcome is Outcome.PASS


def test_a_data_set_has_rules_of_its_own():
    policy = Policy.model_validate(
        {
            "default": {"max_new_failures": 3, "accepted_at_1": {"min_difference": -0.01}},
            "datasets": {"one": {"max_new_failures": None, "min_problems": 5}},
        }
    )
    assert policy.rules("two") == policy.default
    one = policy.rules("one")
    assert (one.max_new_failures, one.min_problems) == (None, 5)
    assert one.accepted_at_1 == policy.default.accepted_at_1


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("", "policy.yaml: no rules"),
        ("- x", "policy.yaml: the top level must be a mapping"),
        ("default: {max_new_failure: 3}", "did you mean 'default.max_new_failures'?"),
        ("default: {accepted_at_1: {min_difference: .nan}}", "min_difference"),
        ("default: {costs: {tokens: {max_ratio: 2}}}", "default.costs.tokens"),
    ],
)
def test_a_policy_that_cannot_be_used(tmp_path, policy, said):
    (tmp_path / "policy.yaml").write_text(policy)
    with pytest.raises(ConfigError) as caught:
        read_policy(tmp_path / "policy.yaml")
    assert said in str(caught.value)


STOPPED = {
    "outcome": "go", "rules": [], "policy": "p", "baseline": "a", "problems": 40, "planned": 200
}  # fmt: skip


def sequential(first, second, rules):
    policy = Policy.model_validate({"default": rules})
    return evaluate(policy, compare_runs(*read_runs([first, second])), sequential=True)


def test_a_sequential_gate_says_after_how_many_problems_it_is_decided(tmp_path):
    first = write_run(tmp_path / "a", {"one": "-" * 100})
    second = write_run(tmp_path / "b", {"one": "+" * 100})
    rules = {
        "accepted_at_1": {"min_difference": 0.0},
        "pass_ratio_mean": {"min_difference": 0.0},
        "error_rates": {"wrong_answer_rate": {"max_increase": 0.0}},
        "max_new_failures": 0,
    }
    report = sequential(first, second, rules)
    assert report.outcome is Outcome.PASS
    after = {finding.rule: finding.found.partition(" after ")[2] for finding in report.findings}
    numbers = {name: int(text.split()[0]) for name, text in after.items() if text}
    assert numbers["accepted_at_1"] == numbers["wrong_answer_rate"] < 15
    assert numbers["accepted_at_1"] < numbers["pass_ratio_mean"] < 40  # by half a point each
    assert sequential(second, first, rules).outcome is Outcome.FAIL
    least = sequential(first, second, {**rules, "min_problems": 50}).findings
    assert {one.found.split()[-3] for one in least if " after " in one.found} == {"50"}


def test_a_part_of_the_problems_decides_no_rule_about_all(tmp_path):
    first = write_run(tmp_path / "a", {"one": "-" * 39 + "+"})
    second = write_run(tmp_path / "b", {"one": "+" * 39 + "-"}, change={"stopped": STOPPED})
    better = {"accepted_at_1": {"min_difference": 0.0}}
    assert sequential(first, second, better).outcome is Outcome.PASS
    for rules, outcome in (
        ({"max_new_failures": 1}, Outcome.UNDECIDED),
        ({"max_new_failures": 0}, Outcome.FAIL),
        ({"accepted_at_1": {"min_difference": 0, "confidence": "point"}}, Outcome.UNDECIDED),
        ({"costs": {"avg_gen_time": {"max_value": 9}}}, Outcome.UNDECIDED),
    ):
        assert sequential(first, second, {**better, **rules}).outcome is outcome, rules
    # Without --sequential, and as the first run, it decides nothing.
    policy = Policy.model_validate({"default": better})
    runs = read_runs([first, second])
    assert evaluate(policy, compare_runs(*runs)).outcome is Outcome.UNDECIDED
    assert sequential(second, first, better).outcome is Outcome.UNDECIDED
    assert any("stopped early after 40 of 200" in note for note in runs[1].notes)
