"""Answers to LiveCodeBench's kinds of problems, with the verdicts of its own evaluator.

``python -m tests.judge.livecodebench CHECKOUT`` runs ``testing_util.run_test`` of a checkout of
LiveCodeBench on every answer, and writes ``livecodebench_verdicts.json``: per answer ``success``,
``wrong_answer``, ``runtime_error`` or ``timeout``.
"""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shared.schemas import StdioTests
from shared.statuses import Convention

VERDICTS = Path(__file__).with_name("livecodebench_verdicts.json")
STATUS = {1: "success", 0: "wrong_answer", -2: "wrong_answer", -3: "timeout", -4: "runtime_error"}
SECONDS = 2


@dataclass(frozen=True)
class Answer:
    name: str
    tests: StdioTests
    code: str


def tests_of(*cases: tuple[str, str], **fields: str) -> StdioTests:
    inputs, outputs = zip(*cases, strict=True)
    convention = Convention.LIVECODEBENCH
    return StdioTests(inputs=[*inputs], outputs=[*outputs], convention=convention, **fields)


call_tests = partial(tests_of, fn_name="solve")
program_tests = partial(tests_of, checker="decimals")


# Parameters, an expression that is right, tests.
CALLS = {
    "sum": ("a", "sum(a)", call_tests(("[1, 2]", "3"), ("[]", "0"), ("[5]", "5"))),
    "pairs": ("a, b", "[[x, y] for x in a for y in b]",
              call_tests(("[1]\n[2]", "[[1, 2]]"), ("[1, 2]\n[3]", "[[1, 3], [2, 3]]"))),
    "words": ("s", "s.split()", call_tests(('"a b"', '["a", "b"]'), ('""', "[]"))),
    "even": ("n", "n % 2 == 0", call_tests(("2", "true"), ("3", "false"))),
    "mean": ("a", "sum(a) / len(a)", call_tests(("[1, 2]", "1.5"), ("[2, 4]", "3.0"))),
    "sort": ("a", "sorted(a)", call_tests(("[3, 1]", "[1, 3]"), ("[2]", "[2]"))),
    "text": ("s", "s[::-1]", call_tests(('"ab"', '"ba"'), ('"12"', '"21"'))),
    "deep": ("n", "[n, [n, [n]]]", call_tests(("1", "[1, [1, [1]]]"))),
}  # fmt: skip
# Ways to answer: ``P`` are the parameters, ``R`` the right result, ``M`` the same in a method.
CALL_WAYS = {
    "method": "class Solution:\n    def solve(self, P):\n        return R",
    "function": "def solve(P):\n    return R",
    "prints": "class Solution:\n    def solve(self, P):\n        print(1, R)\n        return R",
    "prints the result": "def solve(P):\n    print(R)",
    "text of it": "class Solution:\n    def solve(self, P):\n        return str(R)",
    "tuple": "def solve(P):\n    r = R\n    return tuple(r) if isinstance(r, list) else r",
    "tuples inside": "def solve(P):\n    r = R\n    return [tuple(x) if isinstance(x, list) else x"
    " for x in r] if isinstance(r, list) else r",
    "generator": "def solve(P):\n    r = R\n"
    "    return (x for x in r) if isinstance(r, list) else r",
    "iterator": "def solve(P):\n    r = R\n    return iter(r) if isinstance(r, list) else r",
    "numpy": "import numpy as np\ndef solve(P):\n    r = R\n"
    "    return np.int64(r) if isinstance(r, int) and not isinstance(r, bool) else r",
    "numpy inside": "import numpy as np\ndef solve(P):\n    r = R\n    if isinstance(r, list):\n"
    "        r = [np.int64(x) if isinstance(x, int) else x for x in r]\n    return r",
    "float": "def solve(P):\n    r = R\n    return float(r) if isinstance(r, int) else r",
    "boxed": "def solve(P):\n    return [R]",
    "none": "def solve(P):\n    R",
    "raises": "class Solution:\n    def solve(self, P):\n        raise ValueError(R)",
    "asserts": "def solve(P):\n    assert not [R]\n    return R",
    "exits": "import sys\ndef solve(P):\n    sys.exit(0)",
    "missing": "class Solution:\n    def other(self, P):\n        return R",
    "no self": "class Solution:\n    def solve(P):\n        return R",
    "does not compile": "def solve(P)\n    return R",
    "not imported": "def solve(P):\n    d = deque([R])\n    return d.popleft()",
    "annotated": "class Solution:\n    def solve(self, *args: List[int]) -> Optional[int]:\n"
    "        P = args[0] if len(args) == 1 else args\n        return R",
    "guard": "def solve(P):\n    return R\nif __name__ == '__main__':\n    print(solve())",
    "raises at import": "raise ValueError\ndef solve(P):\n    return R",
    "state": "calls = []\ndef solve(P):\n    calls.append(1)\n"
    "    return R if len(calls) < 2 else None",
    "static": "class Solution:\n    @staticmethod\n    def solve(P):\n        return R",
    "lambda": "solve = lambda P: R",
    "recursive": "def down(n):\n    return 0 if n == 0 else down(n - 1)\n"
    "def solve(P):\n    down(5000)\n    return R",
    "shadows": "class Solution:\n    def copy(self, x):\n        return x\n"
    "    def solve(self, P):\n        return self.copy(R)",
    "future": "from __future__ import annotations\ndef solve(P) -> Missing:\n    return R",
    "loops": "def solve(P):\n    while True: pass",
}  # fmt: skip

PROGRAMS = {
    "add": ("a, b = map(int, input().split())", "a + b",
            program_tests(("1 2\n", "3\n"), ("5 6\n", "11\n"))),
    "half": ("n = int(input())", "n / 2", program_tests(("3\n", "1.5\n"), ("4\n", "2\n"))),
    "echo": ("s = input()", "s", program_tests(("a b\n", "a b\n"), ("X\n", "X\n"))),
    "sum": ("n = int(input()); a = list(map(int, input().split()))", "sum(a)",
            program_tests(("2\n1 2\n", "3\n"), ("1\n5", "5"))),
}  # fmt: skip
# ``I`` reads the input, ``R`` is the right result.
PROGRAM_WAYS = {
    "plain": "I\nprint(R)",
    "function": "def main():\n    I\n    print(R)\nmain()",
    "guard": "def main():\n    I\n    print(R)\nif __name__ == '__main__':\n    main()",
    "double quotes": 'def main():\n    I\n    print(R)\nif __name__ == "__main__":\n    main()',
    "guard first": "if __name__ == '__main__':\n    I\n    print(R)\nx = 1",
    "exits": "I\nprint(R)\nexit()",
    "exits with 1": "import sys\nI\nprint(R)\nsys.exit(1)",
    "raises after": "I\nprint(R)\nraise ValueError",
    "wrong": "I\nprint(R, 1)",
    "blanks": "I\nprint('  ', R, '   ')\nprint()",
    "blank lines": "I\nprint()\nprint(R)\nprint()",
    "line too many": "I\nprint(R)\nprint(R)",
    "nothing": "I",
    "does not compile": "I\nprint(R",
    "not imported": "I\nq = deque([R])\nprint(q.popleft())",
    "gcd not imported": "I\nprint(R if gcd(4, 6) == 2 else 0)",
    "stdin": "import sys\ninput = lambda: sys.stdin.readline().rstrip()\nI\nprint(R)",
    "read": "import sys\nlines = iter(sys.stdin.read().split('\\n'))\ninput = lambda: next(lines)\n"
    "I\nprint(R)",
    "buffer": "import sys\nlines = iter(sys.stdin.buffer.read().decode().split('\\n'))\n"
    "input = lambda: next(lines)\nI\nprint(R)",
    "open": "lines = iter(open(0).read().split('\\n'))\ninput = lambda: next(lines)\nI\nprint(R)",
    "reads too much": "I\ninput()\ninput()\ninput()\nprint(R)",
    "recursive": "def down(n):\n    return 0 if n == 0 else down(n - 1)\nI\ndown(5000)\nprint(R)",
    "write": "import sys\nI\nsys.stdout.write(str(R) + '\\n')",
    "upper": "I\nprint(str(R).upper() + 'x')",
    "zeros": "I\nr = R\nprint(f'{r:.6f}' if isinstance(r, (int, float)) else r)",
    "future": "from __future__ import annotations\nI\nprint(R)",
    "global": "count = 0\ndef more():\n    global count\n    count += 1\nI\nmore()\nprint(R)",
    "stderr": "import sys\nI\nprint('debug', file=sys.stderr)\nprint(R)",
    "loops": "I\nwhile True: pass",
}  # fmt: skip


def answers() -> Iterator[Answer]:
    for name, (parameters, right, tests) in CALLS.items():
        for way, code in CALL_WAYS.items():
            if way == "loops" and name != "mean":
                continue  # it takes seconds
            filled = (
                code.replace("P", parameters).replace("R", right)
                if way != "annotated"
                else (code.replace("P =", f"{parameters} =").replace("R", right))
            )
            yield Answer(f"call/{name}/{way}", tests, filled)
    for name, (reading, right, tests) in PROGRAMS.items():
        for way, code in PROGRAM_WAYS.items():
            if way == "loops" and name != "add":
                continue
            lines = reading.split("; ")
            filled = "\n".join(
                "\n".join(line[:-1] + one for one in lines)
                if line.strip() == "I"
                else line.replace("R", right)
                for line in code.split("\n")
            )
            yield Answer(f"program/{name}/{way}", tests, filled)


RUN = f"""
import json, sys
sys.path.insert(0, sys.argv[1])
from lcb_runner.evaluation.testing_util import run_test
given = json.load(sys.stdin)
found, _ = run_test({{"input_output": given["tests"]}}, test=given["code"], timeout={SECONDS})
sys.__stderr__.write("\\nRESULT " + json.dumps([int(code) for code in found]))
"""


def verdict_of(checkout: str, answer: Answer) -> str:
    """Judge an answer by LiveCodeBench's own evaluator, in a process: it breaks its own."""
    tests = answer.tests.model_dump(include={"inputs", "outputs", "fn_name"}, exclude_none=True)
    given = json.dumps({"tests": json.dumps(tests), "code": answer.code})
    command = [sys.executable, "-c", textwrap.dedent(RUN), checkout]
    run = subprocess.run(command, input=given, capture_output=True, text=True)
    _, _, result = run.stderr.rpartition("RESULT ")
    # Where it ends without a result, its caller counts a run-time error.
    codes = json.loads(result) if result else [-4]
    return STATUS[min(codes, key=lambda code: code == 1)] if codes else "runtime_error"


def main() -> None:
    found = {answer.name: verdict_of(sys.argv[1], answer) for answer in answers()}
    VERDICTS.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
