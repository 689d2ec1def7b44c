"""Invariants of extraction for any completion."""

import ast
import sys
import textwrap

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.extraction import extract, extract_verl
from shared.statuses import ExtractionReason as Reason
from tests.shared.test_extraction import SOLVE

fence_soup = st.lists(
    st.sampled_from(
        ["```", "```python", "~~~", "py", "\n", "\r\n", " ", "    ", "x = 1", SOLVE, "prose here.",
         "<think>", "</think>", '"""', "print(", ")", "\t", "`", "return 3", "@a", "\x00", "\ud800",
         ">>> ", "solve(1)", "n += 1", "```cpp", "#include <x>", "lambda: 0", "import solve as b",
         "from a import *", "class A:", "    pass", "match x:", "\x0c", "\u2028"]
    ),
    max_size=30,
).map("".join)  # fmt: skip
anything = fence_soup | st.text() | st.text(st.characters())
languages = st.sampled_from(["python", "cpp", "nodejs", "R", "bash", "nonesuch", "", "```"])

statements = st.sampled_from(
    [
        SOLVE,
        "import sys\nfrom math import gcd",
        "@staticmethod\ndef decorated(\n    a, b=(1,\n2),\n):\n    return a",
        'class Point:\n    """A point.\n\nIn a plane: `x`, ``y``.\n    """\n\n    x: int = 0',
        'TEXT = """one\n    two ``` three\n"""',
        "# only ~~~ a comment ```",
        "async def later():\n\tawait later()",
        "if __name__ == '__main__':\n    print(solve(3))",
        "assert solve(1) == 2",
        "for _ in range(3):\n    pass\nelse:\n    print('<think>', '</think>.')",
        "print(\n    1,\n)",
    ]
) | st.text().map(lambda text: f"print({text!r})")
programs = st.lists(statements, min_size=1, max_size=5).map("\n\n".join)
prose = st.sampled_from(
    ["", "Sure, here it is:", "1. First:\n2. Then that.", "Use `solve(n)` or ``x`` there.\n"]
)


@st.composite
def wrapped(draw: st.DrawFn, code: str, *, labels: tuple[str, ...], closed: bool = True) -> str:
    fence = draw(st.sampled_from(["```", "~~~", "````", "~~~~~"]))
    label = draw(st.sampled_from(labels))
    blanks = draw(st.sampled_from(["", " ", "\t "]))
    lines = [f"{fence}{label}{blanks}", code, *([f"{fence}{blanks}"] if closed else [])]
    indent = draw(st.sampled_from(["", " ", "   ", "    ", "\t", "        "]))
    block = textwrap.indent("\n".join(lines), indent)
    after = f"\n{draw(prose)}" if closed else ""
    text = f"{draw(prose)}\n{block}{after}"
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


PYTHON_LABELS = ("python", "Python", "PYTHON", "py", "python3", " python", "{.python}", 'py t="a"')


@given(st.data(), programs)
def test_a_program_in_a_fence_comes_back(data, program):
    ast.parse(program)
    completion = data.draw(wrapped(program, labels=(*PYTHON_LABELS, "")))
    extraction = extract(completion)
    assert extraction.code == program
    assert extraction.reason in (Reason.FENCED, Reason.UNLABELLED, Reason.FRAGMENT)
    assert extract(completion, entry_point="solve") == extraction


@given(st.data(), programs, st.sampled_from(["\nprint(", "\nprint()"]))
def test_a_program_without_a_closing_fence_is_said_to_be(data, program, rest):
    """It is truncated, or ended by a stop string that the server removed."""
    program += rest
    completion = data.draw(wrapped(program, labels=PYTHON_LABELS, closed=False))
    extraction = extract(completion)
    assert (extraction.code, extraction.reason) == (program, Reason.UNCLOSED_FENCE)


@given(st.data(), programs)
def test_blocks_in_other_languages_never_matter(data, program):
    answer = data.draw(wrapped(program, labels=(*PYTHON_LABELS, "")))
    others = ("java", "cpp", "text", "bash", "json", "JavaScript", "python-repl", "markdown")
    junk = st.text(st.characters(exclude_characters="`~<"), max_size=20) | programs
    earlier = data.draw(st.lists(junk.flatmap(lambda j: wrapped(j, labels=others)), max_size=3))
    assert extract("\n".join([*earlier, answer])) == extract(answer)


@example("print('')\n\n# a comment ```\n\ndef solve(n):\n    return n", "", "Sure, here it is:")
@given(programs.filter(lambda p: "(" in p or "import" in p), prose, prose)
def test_a_bare_program_comes_back_and_once_is_enough(program, before, after):
    assert extract(program).code == program.strip("\n")
    extraction = extract(f"{before}\n\n{program}\n\n{after}")
    assert extract(extraction.code).code == extraction.code


@given(anything, languages, st.sampled_from([None, "solve", ""]))
@settings(max_examples=400)
def test_never_raises_and_says_what_it_found(completion, language, entry_point):
    extraction = extract(completion, language=language, entry_point=entry_point)
    assert extraction.found == bool(extraction.code.strip())
    assert (extraction.reason is Reason.EMPTY) == (not completion.strip())
    assert extraction.start is None or completion.startswith(extraction.code, extraction.start)
    assert extract(completion, language=language, entry_point=entry_point) == extraction


HOSTILE_UNITS = (
    ["`", "```\n", "```python\n", "```python\nx = (\n```\n", '```python\n"""\n```\n', "<think>\n",
     "</think>\n", "<think></think>\n", " ", "\n", "~", "   ```python\n", "x```python ", "x\n",
     "x\n`", "a ```python\nx```\n", "```python\nf(x)\n```\n", "````md\n```python\n", "```java\n",
     "```python\ndef f(:\n```\n", '```python\nx = """\n~~~\n', "@a\n", "\r", "int main(\n"]
)  # fmt: skip


def extract_repeated(unit: str, size: int) -> None:
    print(f"{unit!r}, repeated over {size:,} characters")  # names the text after a timeout
    text = unit * (size // len(unit))
    for language in ("python", "cpp"):
        extract(text, language=language, entry_point="f")
    extract_verl(text)


def test_hostile_text_is_read_to_its_end():
    """A cubic or exponential rule runs into the timeout. The work of a quadratic one is counted."""
    for unit in HOSTILE_UNITS:
        extract_repeated(unit, 20_000)


@pytest.mark.parametrize("mark", ["`", "~"])
def test_fences_within_fences_are_read_to_their_end(mark):
    opening = "\n".join(f"{mark * k}python\nx" for k in range(600, 2, -1))
    closing = "\n".join(mark * k for k in range(3, 600))
    extract(f"{opening}\n{closing}")


def test_hostile_python_is_survived():
    """Texts just below the length from which no code is parsed."""
    for unit in ("(", "[", "-", "a.", "1+", "f(", "lambda:", "if x:\n ", "9"):
        code = unit * (199_000 // len(unit))
        extract(code)
        extract(f"```python\n{code}\n```")


def calls_of(completion):
    """Number of calls of Python functions that extraction makes."""
    count = 0

    def step(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(step)
    try:
        for language in ("python", "cpp"):
            extract(completion, language=language, entry_point="f")
        extract(completion)
    finally:
        sys.setprofile(None)
    return count


REPEATED_UNITS = (
    ["<|a|>", "# <|a|>\n", "<|im_start|>assistant\nx", "</think>x\n", "'<think>'\n", "```x``` ",
     "<|im_start|>user\n", "</s>\n",
     "<think>\n<answer>\n", "<answer>\n", "Question:\n", "### Instruction\n", "Answer:\n", "&lt;",
     "1. x\n", "> ```\n", "'''python\n", "`x`\n", " x\n",
     "```python\ng = h\n```\n", "```python\ndef f():\n  return g\n```\n", "```java\nx=1\n```\n",
     "```python\nn = a\n```\n```python\na = int(input())\n```\n", "# ... rest of the code\n",
     "```python\na.sort()\nprint(a)\n```\n```python\na = [int(input())]\n```\n", "\u00a0x\n",
     "```cpp\nint f(int x) {}\n```\n```cpp\nint main() { f(1); }\n```\n", "#include <x>\n",
     "```json\n{}\n```\n", '````python\n"""\n```\n', "```text\n", "return 1\n"]
)  # fmt: skip


def test_twice_the_text_is_at_most_about_twice_the_work():
    extract("warm up")
    units = [*HOSTILE_UNITS, *REPEATED_UNITS]
    counts = {unit: (calls_of(unit * 50), calls_of(unit * 100)) for unit in units}
    superlinear = {
        unit: (once, twice) for unit, (once, twice) in counts.items() if twice >= 2.5 * once + 390
    }
    assert superlinear == {}


def test_long_reasoning_takes_linear_work():
    thoughts = ["a thought\n", "```python\nx = 1\n```\n", "so `</think>` ends it\n", 'it\'s """\n']
    for thought in thoughts:
        for before in ("<think>\n", ""):
            text = f"{before}{thought * 20_000}\n</think>\n```python\n{SOLVE}\n```"
            assert extract(text).code == SOLVE
            long = f"{before}{thought * 40}\n</think>\n```python\n{SOLVE}\n```"
            longer = f"{before}{thought * 80}\n</think>\n```python\n{SOLVE}\n```"
            assert calls_of(longer) < 2.5 * calls_of(long) + 1000
