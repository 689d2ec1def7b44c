"""Programs of a problem, and what verdicts on them say of its tests."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from services.data.certify.programs import (
    Evidence,
    Kind,
    agreed_outputs,
    certify_problem,
    on_inputs,
    probe,
    programs_of,
    read_labelled,
    with_outputs,
)
from services.data.layouts.base import Solution
from services.data.records import Record
from shared.errors import DataError
from shared.schemas import Problem, SampleId
from shared.statuses import FinalStatus
from tests.shared.ledgers import generation, verdict

RIGHT = "def add(a, b):\n    total = 0\n    total += a\n    return total + b\n"
WRONG = "def add(a, b):\n    return a * b\n"
TESTS = {"test_list": ["assert add(2, 2) == 4", "assert add(0, 0) == 0"]}


def problem_of(tests):
    return Problem(dataset="set", problem_id="p", prompt="", ground_truth=json.dumps(tests))


def record():
    problem = problem_of(TESTS)
    python = (Solution("python", RIGHT), Solution("python", f"# again\n{RIGHT}"))
    return Record(problem, python, wrong=(Solution("python", WRONG),))


def programs(tmp_path=None, *lines, most=10):
    labelled = {}
    if lines:
        file = tmp_path / "programs.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        labelled = read_labelled(str(file), "set")
    return programs_of(record(), labelled.get("p", []), most_mutants=most, seed=0)


def judged(status, **fields):
    return verdict(generation(SampleId("set", "p")), status, **fields)


def test_programs_are_labelled_once_and_mutants_follow(tmp_path):
    fenced = {"problem_id": "p", "completion": f"So:\n```python\n{RIGHT}```", "correct": False}
    other = {"problem_id": "p", "completion": "def add(a, b):\n    return b + a", "correct": True}
    elsewhere = {**other, "completion": "def add(a, b):\n    return a - -b", "dataset": "another"}
    labelled = programs(tmp_path, fenced, {**other, "dataset": "set"}, elsewhere)
    assert [program.number for program in labelled] == list(range(len(labelled)))
    kinds = [program.kind for program in labelled]
    assert kinds[:3] == [Kind.RIGHT, Kind.WRONG, Kind.RIGHT]
    assert set(kinds[3:]) == {Kind.MUTANT}
    assert {program.parent for program in labelled[3:]} == {0, 2}
    assert labelled[2].source.endswith("programs.jsonl:2")


@pytest.mark.parametrize(
    "line",
    [
        {"problem_id": "p", "completion": "x", "correct": "so"},
        {"problem_id": "p", "completion": "x", "language": "c++"},
        {"correct": True},
    ],
)
def test_a_line_without_a_label_is_named(tmp_path, line):
    with pytest.raises(DataError, match=r"programs.jsonl:1: not a labelled completion"):
        programs(tmp_path, line)


def test_verdicts_are_counted_by_label():
    found = programs()
    right, wrong, *mutants = found
    other = replace(right, number=90, source="slow")
    bad = replace(right, number=91, source="bad")
    broken = replace(wrong, number=92, source="no program")
    killed, survivor, unknown, unseen, lost, *_ = mutants
    ok, no = judged(FinalStatus.SUCCESS), judged(FinalStatus.WRONG_ANSWER)
    certificate = certify_problem(
        Evidence(
            right.problem,
            [*found, other, bad, broken],
            own={
                right.number: ok, wrong.number: ok, other.number: judged(FinalStatus.TIMEOUT),
                bad.number: no, broken.number: judged(FinalStatus.SYNTAX_ERROR),
                killed.number: no, survivor.number: ok, unknown.number: ok, unseen.number: ok,
                lost.number: judged(FinalStatus.API_ERROR),
            },
            generated={
                other.number: ok, bad.number: no, survivor.number: no, unknown.number: ok,
                wrong.number: no,
            },
        )
    )  # fmt: skip
    assert (certificate.right_accepted, certificate.right_rejected) == (1, 1)
    assert (certificate.wrong_rejected, certificate.wrong_accepted) == (1, 2)
    assert certificate.unknown == 2
    assert (certificate.submitted_rejected, certificate.submitted_accepted) == (0, 1)
    assert [label.source for label in certificate.bad_labels] == ["bad"]
    labelled, mutant = certificate.survivors
    assert not labelled.difference
    removed, added = (
        [line[1:] for line in mutant.difference.split("\n") if line[:1] == sign] for sign in "-+"
    )
    assert removed != added
    assert set(added) <= set(survivor.solution.code.split("\n"))
    assert certificate.true_negative.rate == pytest.approx(1 / 3)
    assert certificate.trust == 0


def test_an_answer_without_a_label_is_wrong_if_generated_inputs_show_it(tmp_path):
    ok, no = judged(FinalStatus.SUCCESS), judged(FinalStatus.WRONG_ANSWER)
    answer = {"problem_id": "p", "completion": "def add(a, b):\n    return max(a, b) * 2\n"}
    right, _, one, *_ = programs(tmp_path, answer)
    assert one.kind is Kind.ANSWER
    counts = {}
    for own, generated in ((ok, ok), (ok, no), (no, ok), (no, no), (no, None)):
        verdicts = {} if generated is None else {one.number: generated}
        evidence = Evidence(right.problem, [one], {one.number: own}, verdicts)
        certificate = certify_problem(evidence)
        counts[own is ok, generated and generated.accepted] = (
            certificate.wrong_rejected, certificate.wrong_accepted, certificate.unknown,
        )  # fmt: skip
    assert counts == {
        (True, True): (0, 0, 1), (True, False): (0, 1, 0), (False, True): (0, 0, 1),
        (False, False): (1, 0, 0), (False, None): (0, 0, 1),
    }  # fmt: skip


def test_without_an_accepted_original_mutants_say_nothing():
    labelled = programs()
    no = judged(FinalStatus.WRONG_ANSWER)
    own = {program.number: no for program in labelled if program.kind is not Kind.WRONG}
    certificate = certify_problem(Evidence(labelled[0].problem, labelled, own))
    assert certificate.true_negative is None
    assert certificate.true_positive is None
    assert certificate.trust is None
    assert len(certificate.bad_labels) == 1


def test_generated_inputs_of_a_function_are_a_program_with_standard_input():
    labelled = programs()
    problem = probe(labelled[0].problem, count=5, seed=0)
    texts = problem.tests.inputs
    assert len(texts) == 5
    guard = "if __name__ == '__main__':\n    print(add(int(input()), 1))\n    raise SystemExit(1)\n"
    reading = "import sys\nassert not sys.stdin.read()\n"
    data = "from dataclasses import dataclass\n@dataclass\nclass Pair:\n    a: 'int' = 1\n"
    future = "from __future__ import annotations\n"
    noise = f"{future}print(7)\n{reading}{data}{RIGHT}print(add(1, 2))\n{guard}print(input())\n"
    noisy = replace(labelled[0], solution=Solution("python", noise))
    code = on_inputs(noisy, problem).solution.code
    command = [sys.executable, "-c", code]
    printed = {
        text: subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
        for text in texts
    }
    assert all(int(printed[text]) == sum(eval(text)) for text in texts)
    other = {**printed, texts[0]: "other"}
    del other[texts[1]]
    agreed = agreed_outputs([printed, other], one_answer=True)
    assert list(agreed) == texts[2:]
    assert list(agreed_outputs([printed, other], one_answer=False)) == [texts[0], *texts[2:]]
    assert with_outputs(problem, agreed).tests.outputs == list(agreed.values())


def test_generated_inputs_of_calls_compare_results_as_json_after_the_usual_imports():
    truth = {"inputs": ["[1, 2]", "[]"], "outputs": ["[1, 2]", "[]"], "fn_name": "same"}
    changed = replace(record(), problem=problem_of(truth))
    found = probe(changed.problem, count=5, seed=0)
    assert found.tests.convention == "livecodebench"
    printed = set()
    for result in ("items", "tuple(items)"):
        code = f"class Solution:\n    def same(self, items: list):\n        return {result}\n"
        solution = Solution("python", code)
        program = programs_of(replace(changed, solutions=(solution,)), [], most_mutants=0, seed=0)[
            0
        ]
        command = [sys.executable, "-c", on_inputs(program, found).solution.code]
        done = subprocess.run(
            command, input="([1, 2],)", capture_output=True, text=True, check=True
        )
        printed.add(done.stdout)
    assert printed == {"list( 1 2 )\n"}
    agreed = with_outputs(changed.problem, {"([1, 2],)": "list( 1 2 )"})
    assert agreed.tests.convention == "livecodebench"
    stdio = problem_of({"inputs": ["1", "9"], "outputs": ["1", "9"], "convention": "apps"})
    assert probe(stdio, count=1, seed=0).tests.convention == "apps"


def test_texts_that_no_parser_takes_are_programs_without_mutants():
    for code in ("def (", "\ud800", f"x = {'-' * 9999}1", f"x = {'1+' * 9999}1"):
        changed = replace(record(), solutions=(Solution("python", code),), wrong=())
        [program] = programs_of(changed, [], most_mutants=9, seed=0)
        assert program.solution.code == code


@pytest.mark.parametrize("language", ["cpp", "go_test"])
def test_a_program_is_in_the_language_of_the_tests(tmp_path, language):
    code = "int f(int n) {\n    return n;\n}" if language == "cpp" else "func f(n int) int {}"
    label = language.removesuffix("_test")
    tests = {"language": language, "prompt": "f(", "program_tests": "}"}
    file = tmp_path / "programs.jsonl"
    line = {"problem_id": "p", "completion": f"```{label}\n{code}\n```", "correct": True}
    file.write_text(json.dumps(line))
    labelled = read_labelled(str(file), "set")["p"]
    changed = replace(record(), problem=problem_of(tests), solutions=(), wrong=())
    [program] = programs_of(changed, labelled, most_mutants=9, seed=0)
    assert program.solution.language == label
    assert program.solution.code.strip() == code
