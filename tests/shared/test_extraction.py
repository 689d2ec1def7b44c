"""Extraction of the program from completions, most of them in the corpus.

``extraction_corpus/marked.txt`` describes its format. ``run.txt`` has answers whose program is no
contiguous part of the completion. There the extracted code runs here, as all of it is our own::

    === name
    function: the function that the tests call (or ``functions: a, b``)
    check: an expression that is true of a right answer
    input: ... and output: of a program on standard input, with "\\n" for line ends
    judged: right (the default) or wrong
    reason: where the code must be found, if that matters
    language: cpp, with ``has`` and ``lacks`` for parts of the code, any number of them
    prompt: text that a function's body continues, with "\\n" for line ends
    escapes: yes, if "\\u00a0", "\\r" and the like in the completion stand for the characters

    the completion
"""

import codecs
import io
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.extraction import Extraction, extract, extract_verl, future_imports
from shared.extraction.languages import defines_function
from shared.schemas import JudgedCode
from shared.statuses import ExtractionReason as Reason

CORPUS = Path(__file__).parent / "extraction_corpus"
SOLVE = "def solve(n):\n    return n + 1"
BROKEN = "def solve(n)\n    return n + 1"
HELPER = "def helper(n):\n    return n"


def python(*codes: str, label: str = "python") -> str:
    return "\n\nSo:\n\n".join(f"```{label}\n{code}\n```" for code in codes)


# The corpus


def marked_answers() -> Iterator[tuple[str, dict[str, str], str]]:
    """Names, options and completions of ``marked.txt``."""
    head, *kinds = re.split(r"^=== ", (CORPUS / "marked.txt").read_text("utf-8"), flags=re.M)
    programs = dict(re.findall(r"^@@@ (\w+)\n(.*?)\n(?=@@@|\Z)", head, re.M | re.DOTALL))
    for kind in kinds:
        title, *texts = re.split(r"^----[ ]?", kind, flags=re.MULTILINE)
        name, *options = title.strip().split("; ")
        for text in texts:
            case, _, completion = text.partition("\n")
            for key, code in programs.items():
                fence = "cpp" if code.startswith("#include") else "python"
                completion = (
                    completion.replace(f"@{key}@", code)
                    .replace(f"«{key}»", f"```{fence}\n{code}\n```")
                    .replace(f"«!{key}»", f"```{fence}\n⟦{code}⟧\n```")
                )
            pairs = dict(option.split(": ", 1) for option in options)
            yield f"{name}: {case}", pairs, completion.removesuffix("\n")


def test_the_program_that_a_person_would_take() -> None:
    failures = []
    for name, options, text in marked_answers():
        completion = text.replace("⟦", "").replace("⟧", "")
        expected = text.partition("⟦")[2].partition("⟧")[0]
        names = options.get("function", "").split(", ")
        language = options.get("language", "python")
        extraction = extract(completion, language=language, entry_point=names)
        record = JudgedCode.of(extraction.code, extraction.reason, extraction.start)
        if extraction.code.strip("\n") != expected.strip("\n"):
            failures.append(
                f"{name}\n{completion}\n-- {extraction.reason}, not this but:\n{extraction.code}"
            )
        if options.get("reason", extraction.reason) != extraction.reason:
            failures.append(f"{name}\n{completion}\n-- the reason is {extraction.reason}")
        if record.read(completion) != extraction.code:
            failures.append(f"{name}\n-- the record of the code gives other code")
    assert not failures, "\n\n".join(failures)


def unescaped(text: str) -> str:
    return re.sub(
        r"\\(?:[rntf\\]|u[0-9a-f]{4})", lambda m: codecs.decode(m[0], "unicode_escape"), text
    )


def answers_to_run() -> Iterator[tuple[str, dict[str, list[str]], str]]:
    for part in re.split(r"^=== ", (CORPUS / "run.txt").read_text("utf-8"), flags=re.M)[1:]:
        head, _, completion = part.partition("\n\n")
        name, *lines = head.split("\n")
        fields = defaultdict(list)
        for line in lines:
            key, _, value = line.partition(": ")
            fields[key].append(value if key == "check" else unescaped(value))
        completion = completion.removesuffix("\n").removesuffix("\n")
        yield name, dict(fields), unescaped(completion) if "escapes" in fields else completion


def output_of(code: str, given: str, monkeypatch: pytest.MonkeyPatch) -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8"))
        patch.setattr(sys, "stdout", out)
        exec(compile(code, "<answer>", "exec", dont_inherit=True), {"__name__": "__main__"})
        out.flush()
    return out.buffer.getvalue().decode()


def is_right(code: str, fields: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> bool:
    try:
        if "input" in fields:
            printed = output_of(code, fields["input"][0], monkeypatch)
            return printed.split() == fields["output"][0].split()
        namespace: dict[str, object] = {"__name__": "answer"}
        exec(compile(code, "<answer>", "exec", dont_inherit=True), namespace)
        return bool(eval(fields["check"][0], namespace))
    except Exception:  # noqa: BLE001 - whatever a wrong answer raises
        return False


def test_programs_that_are_put_together_or_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = sys.getrecursionlimit()
    failures = []
    for name, fields, completion in answers_to_run():
        names = ", ".join(fields.get("functions", fields.get("function", []))).split(", ")
        language = fields.get("language", ["python"])[0]
        extraction = extract(completion, language=language, entry_point=names)
        code = extraction.code
        if extraction.reason is Reason.BODY_ONLY:
            code = f"{fields['prompt'][0].rstrip()}\n{code}"
        defects = [f"lacks {part!r}" for part in fields.get("has", []) if part not in code]
        defects += [f"has {part!r}" for part in fields.get("lacks", []) if part in code]
        if language == "python":
            right = is_right(code, fields, monkeypatch)
            if right is not (fields.get("judged", ["right"]) == ["right"]):
                defects.append(f"is {'right' if right else 'wrong'}")
        if fields.get("reason", [extraction.reason]) != [extraction.reason]:
            defects.append(f"is found as {extraction.reason}")
        failures += [f"{name}: {defect}:\n{code}" for defect in defects]
        sys.setrecursionlimit(limit)  # an answer may raise it
    assert not failures, "\n\n".join(failures)


# Fences


def test_labels_and_closing_lines() -> None:
    openings = (
        "```python,```py,```Python,```PYTHON,```python3,``` python,```python  ,```{.python},"
        "~~~python,~~~~ py,````python,   ```python,Here it is: ```python,```pypy3,"
        '```python title="a.py",'
        "```Python 3.11,```python:a.py,```a.py,```python{.line-numbers},```language-python,"
        "~~~ {.python .numberLines},1. ```python,**```python,You can use ```python"
    )
    closings = (
        ",</answer>,</solution>,<|im_end|>,<|eot_id|>,</s>,<end_of_turn>,<｜end▁of▁sentence｜>,."
    )
    for opening in openings.split(","):
        mark = re.sub(r"[^`~]", "", opening)
        for closing in closings.split(","):
            completion = f"Sure.\n{opening}\n{SOLVE}\n{mark}{closing}\nDone."
            extraction = extract(completion)
            assert (extraction.code, extraction.reason) == (SOLVE, Reason.FENCED), completion


def test_other_languages_need_a_fence() -> None:
    assert extract("echo 1", language="bash").reason is Reason.PROSE_ONLY
    assert extract("#include <iostream>\nint main() {}", language="rust").code == ""
    assert extract("```\necho 1\n```", language="bash").reason is Reason.UNLABELLED


REASONS = [
    (python(SOLVE), SOLVE, Reason.FENCED),
    (f"```\n{SOLVE}\n```", SOLVE, Reason.UNLABELLED),
    (f"```python\r\n{SOLVE}\r\n```\r\n".replace("n:\n", "n:\r\n"), SOLVE, Reason.FENCED),
    ("```python\n    def f():\n        return 1\n```", "def f():\n    return 1", Reason.FENCED),
    (f"```python\n{SOLVE}", SOLVE, Reason.UNCLOSED_FENCE),
    (f"{python(SOLVE)}\n```python\ndef solve(n", SOLVE, Reason.FENCED),
    (f"```\n3\n```\n```python\n{SOLVE}", SOLVE, Reason.UNCLOSED_FENCE),
    ('```python\nx = """\n```\nSo it goes.\n```\n', 'x = """', Reason.FRAGMENT),
    (f"```python\n{SOLVE}  # ```\nx = (", f"{SOLVE}  # ```\nx = (", Reason.UNCLOSED_FENCE),
    (f"{SOLVE}\n", SOLVE, Reason.BARE_CODE),
    (f"{HELPER}\n    \n{SOLVE}", f"{HELPER}\n    \n{SOLVE}", Reason.BARE_CODE),
    (f"{SOLVE}\n~~~\nThat is it.", SOLVE, Reason.BARE_CODE),
    ("    return n + 1\n\nprint(solve(1) or\n", "    return n + 1\n", Reason.BODY_ONLY),
    (f"So:\n\nimport a\n{SOLVE}\n\nO(1).", f"import a\n{SOLVE}", Reason.PROSE_HEURISTIC),
    (python("return n + 1"), "return n + 1", Reason.FRAGMENT),
    (python("4", label=""), "4", Reason.FRAGMENT),
    ("Complexity: O(n)", "", Reason.PROSE_ONLY),
    ("```java\nclass A {}\n```", "", Reason.NO_CODE_BLOCK),
    (f"<think>so\n{python(SOLVE)}", "", Reason.NO_CODE_BLOCK),
    (" \r\n\t", "", Reason.EMPTY),
]  # fmt: skip


@pytest.mark.parametrize(("completion", "code", "reason"), REASONS)
def test_reasons(completion: str, code: str, reason: Reason) -> None:
    extraction = extract(completion)
    assert (extraction.code, extraction.reason) == (code, reason)


# Choice and combination


NO_ANSWERS = [
    "print(solve(3))",
    "n = 3\nassert solve(n) == 4",
    "from solution import solve\nprint(solve(3))",
    "solve(3) -> 4",
    "Hello, world",
    "Complexity: O(n)",
    "total += n",
    "return n + 1",
    "    for i in range(n):\n        total += i",
    "else:\n    n = 1",
    "def test():\n    assert solve(1) == 2\n\ntest()",
    "from solution import solve\n\ndef test_solve():\n    assert solve(1) == 2",
    "def main():\n    print(solve(int(input())))",
]


@pytest.mark.parametrize("label", ["python", ""])
def test_what_cannot_be_an_answer_is_passed_over(label: str) -> None:
    for after in NO_ANSWERS:
        completion = f"{python(SOLVE)}\n\nFor example:\n\n{python(after, label=label)}"
        assert extract(completion).code == SOLVE, after
        assert extract(completion, entry_point="solve").code == SOLVE, after
        # Between two of the kind, too.
        assert extract(python(after, SOLVE, after, label=label)).code == SOLVE, after


ANSWERS = [
    "print(42)",
    "n = int(input())\nprint(n + 1)",
    "from math import *\nprint(sqrt(4))",
    "def solve(n):\n    return n and solve(n - 1)",
    "def other(solve):\n    return solve(1)",
    "from operator import neg as solve\n\ndef other(n):\n    return solve(n)",
    "def other(n):\n    return missing(n)",
    "try:\n    n = int(input())\nexcept EOFError as solve:\n    print(solve)",
    "match input():\n    case [solve, *_]:\n        print(solve)",
    BROKEN,
    "for i in range(int(input()):\n    print(i)",
]


def test_the_last_block_counts_if_it_could_be_an_answer() -> None:
    for code in ANSWERS:
        assert extract(python(SOLVE, code)).code == code


@pytest.mark.parametrize(
    "definition",
    [
        *(SOLVE, BROKEN, "async def solve(n):\n    return n", "class solve:\n    x = 1"),
        *("solve = lambda n: n + 1", "class Solution:\n    def solve(self, n):\n        return n"),
    ],
)
def test_a_known_entry_point_decides(definition: str) -> None:
    for after in (HELPER, "def solves(n):\n    return solve(n)", "print(42)"):
        completion = python(HELPER, definition, after)
        assert extract(completion, entry_point="solve").code == definition
        assert extract(completion, entry_point="nowhere") == extract(completion)


def test_a_combination_has_no_offset() -> None:
    solve = "def solve(n):\n    return helper(n)"
    extraction = extract(python(HELPER, solve), entry_point="solve")
    assert (extraction.code, extraction.reason) == (f"{HELPER}\n\n{solve}", Reason.COMBINED)
    record = JudgedCode.of(extraction.code, extraction.reason, extraction.start)
    assert (record.text, record.start, record.end) == (extraction.code, None, None)
    whole = f"{HELPER}\n\n{solve}"
    assert extract(python(HELPER, whole), entry_point="solve").code == whole


OFFSETS = [
    ("print(1)", 0),
    ("\n\nprint(1)\n", 2),
    ("Here:\n```python\nprint(1)\n```\n", 16),
    ("```python\nprint(1)\n```\n```python\nprint(1)\n```\n", 33),
    ("<think>print(2)</think>\n```\nprint(1)\n```", 28),
    ("<|im_start|>assistant\n```\nprint(1)\n```<|im_end|>", 26),
    ("Well\r\n```python\r\nprint(1)\r\n```\r\n", 17),
    ("Say:\nprint(1)\nx = 1\nand so on", 5),
    ("```python\r\nx = 1\r\nprint(x)\r\n```", None),
    ("1. Code:\n   ```python\n   def f():\n       pass\n   ```", None),
    ("return 1", None),
    ("no code", None),
]


def test_offsets() -> None:
    for completion, start in OFFSETS:
        extraction = extract(completion)
        assert extraction.start == start, completion
        assert start is None or completion[start:].startswith(extraction.code)
    assert extract_verl("a\n```\nx\n```").start == 5


# Functions


@pytest.mark.parametrize(
    ("code", "futures", "rest"),
    [
        ("x = 1", [], "x = 1"),
        ("from __future__ import annotations\nx = 1", ["annotations"], "\nx = 1"),
        ('"""D."""\nfrom __future__ import division\n', ["division"], '"""D."""\n\n'),
        ("from __future__ import annotations; x = 1", ["annotations"], "x = 1"),
        ("from __future__ import (\n    annotations,\n)\nx = 1", ["annotations"], "\n\n\nx = 1"),
        ("from __future__ import annotations\nx = (", [], None),
        ("s = '__future__'", [], "s = '__future__'"),
    ],
)
def test_future_imports(code: str, futures: list[str], rest: str | None) -> None:
    found, left = future_imports(code)
    assert found == [f"from __future__ import {name}" for name in futures]
    assert left == (code if rest is None else rest)


@pytest.mark.parametrize(
    ("code", "defines"),
    [
        ("long f(long x) {", True),
        ("std::vector<int> f (int x)\n{", True),
        ("template <class T> T* f(T* x) {", True),
        ("    public static ArrayList<Long> f(long x) throws Exception {", True),
        ("fn f<T: Ord>(x: Vec<T>) -> T {", True),
        ("func f(x []int) (int, error) {", True),
        ("export const f = (x) => x;", True),
        ("long f(long x);", False),
        ("if (f(1)) {", False),
        ("return f(1) ? x : [] {", False),
        ("std::cout << f(1);\nint g() {", False),
        ("long ff(long x) {", False),
    ],
)
def test_definitions_of_a_function(code: str, defines: bool) -> None:
    assert defines_function(code, "f") is defines
    if defines:
        completion = f"```cpp\n{code}\n```\n```cpp\n#include <a>\nint main() {{}}\n```"
        assert extract(completion, language="cpp", entry_point="f").code == code


# verl's rule


@pytest.mark.parametrize(
    ("completion", "code", "reason"),
    [
        ("a ```python\nx\n``` b ```python\ny\n``` c", "\ny\n", Reason.FENCED),
        ("```python3\nx\n```", "3\nx\n", Reason.FENCED),
        ("```py\nx\n```", "x\n", Reason.UNLABELLED),
        ("``` Python \nx\n```", "x\n", Reason.UNLABELLED),
        ("```\nx\n```", "\nx\n", Reason.UNLABELLED),
        ("```x```", "x", Reason.UNLABELLED),
        ("```python\nx", "\nx", Reason.UNCLOSED_FENCE),
        ("```\nx", "\nx", Reason.UNCLOSED_FENCE),
        ("x = 1", "", Reason.NO_CODE_BLOCK),
        (" \n", "", Reason.EMPTY),
    ],
)
def test_verls_extraction_to_the_letter(completion: str, code: str, reason: Reason) -> None:
    assert extract_verl(completion) == Extraction(code, reason)
