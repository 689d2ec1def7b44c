"""`plumb gate` as a user runs it."""

import json

import pytest
import yaml

from shared.analysis.compare import compare_runs
from shared.analysis.gate import Outcome, evaluate
from shared.analysis.gate_policy import Policy, read_policy
from shared.analysis.runs import read_runs
from shared.errors import ConfigError
from tests.cli.commands import ROOT, plumb
from tests.cli.finished_runs import write_run

GO, NO_GO, INCONCLUSIVE = 0, 1, 2
HALF = "+-" * 100


def gate(folder, policy, *arguments):
    text = policy if isinstance(policy, str) else yaml.safe_dump(policy)
    (folder / "policy.yaml").write_text(text)
    return plumb("gate", "a", "b", "--policy", "policy.yaml", *arguments, folder=folder)


def runs(folder, first, second, **second_run):
    write_run(folder / "a", {"one": first}, summary={"avg_total_gen_tokens": 100.0})
    write_run(folder / "b", {"one": second}, **second_run)
    return folder


def accepted(least, confidence="interval"):
    return {"default": {"accepted_at_1": {"min_difference": least, "confidence": confidence}}}


# Of 200 problems ten are lost (5 points): the interval is -9.0 … -1.9.
TEN_LOST = "--" * 10 + "+-" * 90


@pytest.mark.parametrize(
    ("policy", "code", "why"),
    [
        (accepted(-0.1), GO, "whole interval within"),
        (accepted(-0.01), NO_GO, "whole interval beyond"),
        (accepted(-0.05), INCONCLUSIVE, "too few problems to decide"),
        (accepted(-0.05, "point"), GO, "difference within"),
        (accepted(-0.049, "point"), NO_GO, "difference beyond"),
    ],
)
def test_a_difference_against_its_limit(tmp_path, policy, code, why):
    done = gate(runs(tmp_path, HALF, TEN_LOST), policy)
    assert done.code == code
    (row,) = [line for line in done.stdout.splitlines() if "accepted_at_1" in line]
    assert why in row
    assert "-5.00 (-8." in row


def rule(name, **limits):
    return {"default": {name: limits}}


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
        (rule("pass_ratio_mean", min_difference=-0.03, confidence="point"), Outcome.PASS),
        (rule("pass_ratio_mean", min_difference=-0.02, confidence="point"), Outcome.FAIL),
        ({"default": {"max_new_failures": 10}}, Outcome.PASS),
        ({"default": {"max_new_failures": 9}}, Outcome.FAIL),
        ({"default": {"min_problems": 200}}, Outcome.PASS),
        ({"default": {"min_problems": 201}}, Outcome.UNDECIDED),
        (rule("costs", avg_total_gen_tokens={"max_ratio": 1.5}), Outcome.PASS),
        (rule("costs", avg_total_gen_tokens={"max_ratio": 1.4}), Outcome.FAIL),
        (rule("costs", avg_total_gen_tokens={"max_value": 150}), Outcome.PASS),
        (rule("costs", avg_total_gen_tokens={"max_value": 149}), Outcome.FAIL),
        (rule("costs", avg_gen_time={"max_value": 149}), Outcome.UNDECIDED),
    ],
)
def test_each_rule(tmp_path, policy, outcome):
    runs(tmp_path, HALF, TEN_LOST, summary={"avg_total_gen_tokens": 150.0})
    compared = compare_runs(*read_runs([str(tmp_path / name) for name in "ab"]))
    report = evaluate(Policy.model_validate(policy), compared)
    assert report.outcome is outcome
    assert [each.rule for each in report.findings if each.outcome is not Outcome.PASS] == (
        [] if outcome is Outcome.PASS else [report.findings[-1].rule]
    )


def test_a_rule_that_fails_decides_over_one_that_cannot_be_decided(tmp_path):
    policy = accepted(-0.05)
    policy["default"]["max_new_failures"] = 9
    done = gate(runs(tmp_path, HALF, TEN_LOST), policy, "--json", "found.json")
    assert done.code == NO_GO
    assert done.line == "plumb: no-go: one new failures (of 4 rules)"
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["outcome"] == "fail"
    assert {each["rule"]: each["outcome"] for each in document["findings"]} == {
        "coverage": "pass",
        "problems": "pass",
        "new failures": "fail",
        "accepted_at_1": "undecided",
    }


def test_go_is_said(tmp_path):
    done = gate(runs(tmp_path, HALF, HALF), accepted(-0.02))
    assert (done.code, done.stderr) == (GO, "")
    assert done.stdout.splitlines()[-1] == "go: all 3 rules hold"


def test_too_few_problems_say_nothing_even_where_nothing_differs(tmp_path):
    done = gate(runs(tmp_path, "+-" * 5, "+-" * 5), accepted(-0.02))
    assert done.code == INCONCLUSIVE
    assert done.line == "plumb: inconclusive: one accepted_at_1 (of 3 rules)"


def test_an_incomplete_run_cannot_be_judged_even_where_rules_fail(tmp_path):
    folder = runs(tmp_path, HALF, "!" + TEN_LOST[1:])
    policy = {"default": {"max_new_failures": 3}}
    done = gate(folder, policy)
    assert done.code == INCONCLUSIVE
    assert done.line == "plumb: inconclusive: one coverage (of 3 rules)"
    assert "A 100.00%, B 99.50%" in done.stdout
    assert gate(folder, {"default": {"max_new_failures": 3, "min_coverage": 0.99}}).code == NO_GO


def test_samples_that_were_planned_and_have_no_verdict_are_not_covered(tmp_path):
    done = gate(runs(tmp_path, HALF, HALF[:-1] + " "), {"default": {"max_new_failures": 3}})
    assert done.code == INCONCLUSIVE
    assert "B 99.50%" in done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config.sandbox.timeout": 3.0}, "sandbox.timeout is 10.0 in A and 3.0 in B"),
        ({"state": "running"}, "B is running"),
    ],
)
def test_runs_that_cannot_be_compared(tmp_path, change, said):
    folder = runs(tmp_path, HALF, TEN_LOST, change=change)
    done = gate(folder, {"default": {"max_new_failures": 0}})
    assert done.code == INCONCLUSIVE
    assert said in done.stdout
    assert "new failures" not in done.stdout


def test_a_data_set_that_only_one_run_has(tmp_path):
    write_run(tmp_path / "a", {"one": HALF, "two": "+"})
    write_run(tmp_path / "b", {"one": HALF})
    done = gate(tmp_path, {"default": {"max_new_failures": 0}})
    assert done.code == INCONCLUSIVE
    assert "only in A" in done.stdout


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


def test_the_example_is_a_policy():
    policy = read_policy(ROOT / "configs" / "gate.yaml")
    assert policy.rules("humaneval") != policy.default


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("", "policy.yaml: no rules"),
        ("default: {}", "policy.yaml: no rules"),
        ("- x", "policy.yaml: the top level must be a mapping"),
        ("default: {max_new_failure: 3}", "did you mean 'default.max_new_failures'?"),
        ("default: {max_new_failures: -1}", "'default.max_new_failures'"),
        ("default: {accepted_at_1: {min_difference: .nan}}", "min_difference"),
        ("default: {accepted_at_1: {min_difference: 0, confidence: 9}}", "confidence"),
        ("default: {costs: {tokens: {max_ratio: 2}}}", "default.costs.tokens"),
    ],
)
def test_a_policy_that_cannot_be_used(tmp_path, policy, said):
    (tmp_path / "policy.yaml").write_text(policy)
    with pytest.raises(ConfigError) as caught:
        read_policy(tmp_path / "policy.yaml")
    assert said in str(caught.value)


def test_rules_for_a_data_set_that_is_not_there(tmp_path):
    done = gate(runs(tmp_path, "+", "+"), "datasets: {three: {min_problems: 3}}")
    assert done.code == INCONCLUSIVE
    assert done.line == (
        "plumb: the policy has rules for 'three', which neither run has; the runs have one"
    )


def test_no_policy_file(tmp_path):
    runs(tmp_path, "+", "+")
    done = plumb("gate", "a", "b", "--policy", "none.yaml", folder=tmp_path)
    assert done.code == INCONCLUSIVE
    assert done.line == "plumb: cannot read the config none.yaml: No such file or directory"
