"""Offsets of extracted code in the completion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.extraction import extract, extract_verl

PIECES = [
    *("```python\n", "```\n", "```cpp\n", "print(1)\n", "def f():\n    return 1\n", "  x = 1\n"),
    *("<think>\n", "</think>\n", "\r\n", "\n", "Prose, no code.\n", "    ", "int main() {}\n", "é"),
]


@pytest.mark.parametrize(
    ("completion", "start"),
    [
        ("print(1)", 0),
        ("\n\nprint(1)\n", 2),
        ("Here:\n```python\nprint(1)\n```\n", 16),
        ("```python\nprint(1)\n```\n```python\nprint(1)\n```\n", 33),
        ("<think>print(2)</think>\n```\nprint(1)\n```", 28),
        ("Well\r\n```python\r\nprint(1)\r\n```\r\n", 17),
        ("Say:\nprint(1)\nx = 1\nand so on", 5),
    ],
)
def test_where_the_code_begins(completion, start):
    found = extract(completion)
    assert found.start == start
    assert completion[start:].startswith(found.code)


@pytest.mark.parametrize(
    "completion",
    [
        "```python\r\nx = 1\r\nprint(x)\r\n```",
        "1. Code:\n   ```python\n   def f():\n       pass\n   ```",
        "return 1",
        "no code",
    ],
)
def test_code_that_is_no_contiguous_part_has_no_offset(completion):
    assert extract(completion).start is None


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_an_offset_is_that_of_the_code(completion):
    for found in (extract(completion), extract(completion, language="cpp")):
        if found.start is not None:
            assert completion.startswith(found.code, found.start)
    found = extract_verl(completion)
    assert (found.start is None) == (not found.found)
    assert completion.startswith(found.code, found.start or 0)
