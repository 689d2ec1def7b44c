"""Answers and tests on which our scorer and verl's must agree."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from shared.schemas import StdioTests
from tests.judge.tasks import fenced

ECHO = "print(input())"


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion and its tests. ``timeout`` is seconds per case."""

    name: str
    completion: str
    tests: StdioTests
    timeout: float = 10


def stdio(*cases: tuple[str, str], fn_name: str | None = None) -> StdioTests:
    inputs, outputs = zip(*cases, strict=True)
    return StdioTests(inputs=list(inputs), outputs=list(outputs), fn_name=fn_name)


def answers() -> list[Answer]:
    """All of them; names are unique."""
    kinds = {
        "output": _outputs(),
        "program": _programs(),
        "syntax": _syntax_errors(),
        "extraction": _extractions(),
        "call": _calls(),
        "mix": _mixes(12),
        "once": _once_different(),
        "time": _time_outs(),
    }
    return [
        Answer(f"{kind}-{number:03}", *rest)
        for kind, made in kinds.items()
        for number, rest in enumerate(made)
    ]


_Made = Iterator[tuple[str, StdioTests] | tuple[str, StdioTests, float]]


def _outputs() -> _Made:
    """Trailing newlines alone do not count."""
    printed = ["", "\n", "1", "1\n", "1\n\n\n", "1 \n", "\n1\n", "1\r\n", "ä\n", "1\x00\n"]
    expected = ["", "1\n\n", "1 ", "\n1", "ä\n"]
    for text in printed:
        program = f"import sys\nsys.stdout.buffer.write({text.encode()!r})"
        yield fenced(program), stdio(*(("", other) for other in expected))
    for text, other in [
        ("A", "a"),
        ("1.0", "1"),
        ("[1, 2]", "[1,2]"),
        ("x" * 50_000, "x" * 50_000),
    ]:
        yield fenced("print(input())"), stdio((text, other))
    yield fenced("import sys\nsys.stdout.buffer.write(b'\\xff\\n')"), stdio(("", "\xff"), ("", ""))


def _programs() -> _Made:
    """Every way for a program to end, within the time limit."""
    programs = [
        ECHO,
        "pass",
        "",
        "print(input(), end='')",
        "print(input(), input())",
        "import sys; print(sys.stdin.read(), end='')",
        "import sys; sys.stderr.write('noise'); print(input())",
        "raise ValueError('x')",
        "print(input()); raise ValueError",
        "import sys; print(input()); sys.exit(0)",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a reason')",
        "import os; print(input(), flush=True); os._exit(0)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "import os; os.abort()",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "x = bytearray(10**10)",
        "raise MemoryError",
        "def f(n):\n    return f(n + 1)\nf(0)",
        "import no_such_module",
        "print(10 // int(input()))",
        "exec('a = = 1')",
        "raise SyntaxError('mine')",
        "raise SystemExit",
        "raise KeyboardInterrupt",
        "assert input() == '1'",
        "if __name__ == '__main__':\n    print(input())",
        "from threading import Thread\nt = Thread(target=lambda: print(input()))\nt.start()",
        "import atexit\natexit.register(lambda: print(input()))",
        "import sys\nsys.stdout.close()",
        "import os\nos.close(1)\nprint(1)",
        "from __future__ import annotations\nprint(input())",
        "import __main__\nprint(input()) if __main__.__name__ == '__main__' else None",
        "input = __import__('sys').stdin.readline\nprint(input())",
        "print('1', file=open('out.txt', 'w')); print(open('out.txt').read())",
        "open('m.py', 'w').write('a = = 1')\nimport m",
        "print(input())\rprint()",
    ]
    tests = stdio(("1\n", "1\n"), ("0", ""))
    for program in programs:
        yield fenced(program), tests


def _syntax_errors() -> _Made:
    broken = ["print(", "if True:\npass", "def f():\n\tx\n        y", "a = 1 1", "return 1"]
    broken += ["x\0y", "'''", "\\", "é = 1\nè(", "await x", "  x = 1", "class", "0777", "f'{'"]
    broken += ["\ufeffprint(1)", "(" * 300 + ")" * 300, "x = " + "9" * 5000]
    for program in broken:
        yield fenced(program), stdio(("1", "1"), ("", ""), ("2", "3"))


def _extractions() -> _Made:
    """Fences in every place where a model puts them, and nowhere."""
    one, two = "print(1)", "print(2)"
    texts = [
        one,
        "I do not know.",
        "`print(1)`",
        "~~~python\nprint(1)\n~~~",
        f"```\n{one}\n```",
        f"```python{one}```",
        f"```python\n{one}",
        f"```python\r\n{one}\r\n```",
        f"```py\n{one}\n```",
        f"```Python\n{one}\n```",
        f"``` python\n{one}\n```",
        f"```cpp\n{one}\n```",
        f"```text\n{two}\n```\n```python\n{one}\n```",
        f"```python\n{two}\n```\n```python\n{one}\n```",
        f"```python\n{one}\n```\n```\n{two}\n```",
        f"```\n{one}\n```\n```\n{two}\n```",
        f"```\n```\n{one}\n```",
        f"```python\n```python\n{one}\n```",
        f"```python\n{one}\n```python\n{two}\n```",
        f"<think>```python\n{two}\n```</think>\n```python\n{one}\n```",
        f"```python\ns = '''\n```\n'''\n{one}\n```",
        "```python",
        "```",
        "",
        " \n ",
        f"```\npython\n{one}\n```",
        f"```{{.python}}\n{one}\n```",
    ]
    for text in texts:
        yield text, stdio(("", "1"))


def _calls() -> _Made:
    """Functions called with JSON arguments."""
    calls = [
        ("def f(a, b):\n    return a + b", "1\n2", "3"),
        ("class Solution:\n    def f(self, a, b):\n        return a + b", "1\n2", "3"),
        ("def f(a, b):\n    return [b, a]", '"x"\n{"k": null}', '[{"k": null}, "x"]'),
        ("def f(a):\n    return (a, a)", "1", "[1, 1]"),
        ("def f(a):\n    return a > 0", "1", "true"),
        ("def f(a):\n    return None", "1", "null"),
        ("def f(a):\n    return 'text'", "1", "text"),
        ("def f(a):\n    return 0.5", "1", "0.5"),
        ("def f(a):\n    return float('nan')", "1", "nan"),
        ("def f(a):\n    return ['ä']", "1", '["\\u00e4"]'),
        ("def f():\n    return 7", "", "7"),
        ("def f(a):\n    return sqrt(a) + Counter('aa')['a']", "4", "4.0"),
        ("def f(a: List[int]) -> int:\n    return sum(a)", "[1, 2]", "3"),
        ("def f(a):\n    return a", "1", "2"),
        ("def f(a):\n    return a", "1\n", "1"),
        ("def f(a):\n    return a", "not json", "1"),
        ("def f(a):\n    raise ValueError", "1", "1"),
        ("def f(a):\n    print('noise')\n    return a", "1", "noise\n1"),
        ("def f(a):\n    print(1)\n    raise ValueError", "1", "1"),
        ("def f(a, b):\n    return a", "1", "1"),
        ("def g(a):\n    return a", "1", "1"),
        ("class Solution:\n    def g(self, a):\n        return a", "1", "1"),
        (
            "class Solution:\n    def __init__(self, x): pass\n    def f(self, a): return a",
            "1",
            "1",
        ),
        ("f = 3", "1", "1"),
        ("f = lambda a: a", "1", "1"),
        ("def f(a):\n    import sys\n    sys.exit(1)", "1", "1"),
        ("def f(a):\n    import sys\n    print(a)\n    sys.exit(0)", "1", "1"),
        ("def f(a):\n    return {1, 2}", "1", "{1, 2}"),
        ("def f(a):\n    return {(1, 2): 3}", "1", "1"),
        ("def f(a):\n    return (x for x in [1])", "1", "1"),
        ("def f(a):\n    return f(a)", "1", "1"),
        ("raise OSError\ndef f(a):\n    return a", "1", "1"),
        ("def f(a) return a", "1", "1"),
        ("def f(a):\n    return a\nf(", "1", "1"),
        ("from __future__ import annotations\ndef f(a): return a", "1", "1"),
        ("def f(a):\n    return a\nif __name__ == '__main__':\n    print(f(0))", "1", "0\n1"),
        ("def f(a):\n    return a\nprint(input())", "1", "1"),
        ("json = None\ndef f(a):\n    return [a]", "1", "[1]"),
        ("sys = None\ndef f(a):\n    return a", "1", "1"),
        ("def f(*a, **k):\n    return len(a)", "1\n2\n3", "3"),
        ("def f(a):\n    return '$name'", "1", "$name"),
    ]
    for code, stdin, expected in calls:
        yield fenced(code), stdio((stdin, expected), fn_name="f")
    # A name that verl's star imports bring along hides the method of that name.
    for name in ("count", "max", "add"):
        code = f"class Solution:\n    def {name}(self, a, b):\n        return 'mine'"
        yield fenced(code), stdio(("1\n2", "mine"), ("1\n2", "3"), fn_name=name)


_ACTING = """\
import sys
for line in sys.stdin:
    act, _, text = line.strip().partition(" ")
    if act == "print": print(text)
    elif act == "raise": raise ValueError(text)
    elif act == "exit": sys.exit(int(text))
"""


def _mixes(count: int) -> _Made:
    """Several cases each, whose input says what the program does."""
    draw = random.Random(0)
    acts = ["print 1", "print 1", "print 2", "raise x", "exit 0", "exit 2", "print 1\nexit 1", ""]
    for _ in range(count):
        chosen = [(draw.choice(acts), draw.choice(["1", "1\n", "", "2"])) for _ in range(4)]
        yield fenced(_ACTING), stdio(*chosen[: draw.randint(2, 4)])


def _once_different() -> _Made:
    """Answers on which the two did not agree once, though nothing says that they should not."""
    reports = """\
import sys, traceback
try:
    print(eval(input()))
except SyntaxError as error:
    traceback.print_exception(None, error, None)
    sys.exit(1)"""
    yield fenced(reports), stdio(("1 +", "1"), ("1", "1"))
    hidden = "f = None\nclass Solution:\n    def f(self, a): return a"
    yield fenced(hidden), stdio(("1", "1"), fn_name="f")
    yield fenced("x = 1\nx is 1\nreturn 1"), stdio(("1", "1"))
    yield fenced('x = "' + "a" * 30_000), stdio(("1", "1"))


def _time_outs() -> _Made:
    """As few as show what there is: each costs its limit on both sides."""
    loop = "n = int(input())\nwhile n: pass\nprint(n)"
    yield fenced(loop), stdio(("0", "0"), ("1", "1"), ("0", "1")), 1
    yield fenced("import time\nprint(1, flush=True)\ntime.sleep(60)"), stdio(("", "1")), 1
    yield fenced("import sys\nsys.stdin.read()\nprint(1)"), stdio(("", "1")), 1
    call = "def f(a):\n    while True: pass"
    yield fenced(call), stdio(("1", "1"), fn_name="f"), 1


def compiled() -> Sequence[tuple[str, StdioTests]]:
    """C++ programs, which verl's ``check_correctness`` takes and its ``compute_score`` does not."""
    read = "#include <iostream>\nint main() { int n; std::cin >> n; "
    return [
        (read + "std::cout << n; }", stdio(("1", "1"), ("2", "3"))),
        (read + "return n; }", stdio(("0", ""), ("7", ""))),
        (read + "std::cout << m; }", stdio(("1", "1"), ("2", "2"), ("3", "3"))),
        ("int main() { return 0", stdio(("1", "1"))),
    ]


def scripts(count: int, answers: Sequence[str]) -> list[StdioTests]:
    """Tests for a stand-in of the sandbox, whose answer is the one that the input names."""
    draw = random.Random(1)
    pairs = [stdio((a, "x"), (b, "x")) for a, b in product(answers, repeat=2)]
    longer = [
        stdio(*((draw.choice(answers), "x") for _ in range(draw.randint(3, 6))))
        for _ in range(count)
    ]
    return pairs + longer
