"""A row of each layout, in its published form."""

import json

CHECKER = '#include "testlib.h"\nint main(int argc, char* argv[]) { quitf(_ok, "fine"); }\n'
STDIN = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
CALLS = [{"input": "[1, 2]\n3", "output": "[1, 2, 3]", "testtype": "functional"}]
# The hub's test of EvalPlus.
PLUS_TEST = "def check(candidate):\n    inputs = [[4], [6]]\n    assert candidate(4) == 2\n"


def humaneval(**changes):
    return {
        "task_id": "HumanEval/0",
        "prompt": "def one():\n",
        "entry_point": "one",
        "canonical_solution": "    return 1\n",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
        **changes,
    }


def mbpp(task_id=11, **changes):
    return {
        "text": "Write a function to add one.",
        "code": "def add(x):\r\n\treturn x + 1",
        "task_id": task_id,
        "test_setup_code": "",
        "test_list": ["assert add(1) == 2", "assert add(2) == 3"],
        "challenge_test_list": [],
        **changes,
    }


def humaneval_plus(**changes):
    return humaneval(test=PLUS_TEST, **changes)


def mbpp_plus(task_id=2, **changes):
    row = mbpp(task_id, prompt="Write a function to add one.", test=PLUS_TEST, **changes)
    return {name: value for name, value in row.items() if name not in ("text", "test_setup_code")}


def cases(*names):
    return {"input": [f"{name}\n" for name in names], "output": [f"{name}! \n" for name in names]}


def contest(name="1_A. One", **changes):
    return {
        "name": name,
        "description": "Shout.",
        "difficulty": 7,
        "source": 2,
        "public_tests": cases("a"),
        "private_tests": cases("b"),
        "generated_tests": cases("c", "d"),
        **changes,
    }


def contest_plus(name="1_A", **changes):
    return {
        "source": "Codeforces",
        "id": name,
        "title": "One",
        "description": "Print any number.",
        "time_limit": 2000,
        "memory_limit": 256,
        "generator_cmd": "./gen 1",
        "checker": CHECKER,
        "test_cases": [{"input": "1\n", "output": "2\n"}, {"input": "3\n", "output": "4\n"}],
        **changes,
    }


def livecodebench(**changes):
    return {
        "question_title": "Sums",
        "question_content": "Add two numbers.",
        "platform": "atcoder",
        "question_id": "abc999_a",
        "contest_id": "abc999",
        "contest_date": "2024-09-07T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(STDIN),
        "private_test_cases": json.dumps(STDIN),
        "metadata": "{}",
        **changes,
    }


def multipl_e(**changes):
    return {
        "name": "HumanEval_900_add",
        "language": "cpp",
        "prompt": "#include<assert.h>\n#include<bits/stdc++.h>\n// Add.\n"
        "long add(long a, long b) {\n",
        "doctests": "transform",
        "tests": "}\nint main() {\n    auto candidate = add;\n"
        "    assert(candidate((1), (2)) == (3));\n}\n",
        "stop_tokens": ["\n}"],
        **changes,
    }


def own(problem_id="demo_1", **changes):
    return {
        "dataset": "demo",
        "split": "test",
        "problem_id": problem_id,
        "prompt": "Add öne.\r\n",
        "data_source": "demo",
        "ground_truth": {"inputs": ["1\n"], "outputs": ["2\n"]},
        "difficulty": "easy",
        "sandbox_dataset": "code_contests",
        "sandbox_id": problem_id,
        "reference_solution": "print(2)",
        **changes,
    }


SAMPLES = {
    "humaneval": humaneval(),
    "mbpp": mbpp(11, text="Write."),
    "humaneval_plus": humaneval_plus(),
    "mbpp_plus": mbpp_plus(),
    "code_contests": contest(solutions={"language": [3], "solution": ["x"]}),
    "code_contests_plus": contest_plus(correct_submissions=[{"language": "py3", "code": "x"}]),
    "livecodebench": livecodebench(),
    "multipl_e": multipl_e(),
    "jsonl": own(extra_info={"tags": ["a"]}),
}
