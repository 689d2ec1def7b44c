"""Marks of texts: syntax of every language, and differences of outputs."""

import random

import pytest

from services.aggregator.marks import difference, highlighted, highlighted_answer

KINDS = ("none", "comment", "string", "number", "keyword")


def parts(text: str, marks: list[int], kind: str) -> list[str]:
    """The parts of a text with a kind; places are of UTF-16."""
    units, at, found = text.encode("utf-16-le"), 0, []
    for length, number in zip(marks[::2], marks[1::2], strict=True):
        if KINDS[number] == kind:
            found.append(units[2 * at : 2 * (at + length)].decode("utf-16-le"))
        at += length
    assert 2 * at <= len(units) + 2  # the end of the last line
    return found


@pytest.mark.parametrize(
    ("language", "code", "keywords"),
    [
        ("python", "def f():\n    return 1", ["def", "return"]),
        ("cpp", "int main() { return 7; } // int", ["int", "return"]),
        ("java", "class A { }", ["class"]),
        ("nodejs", "const x = 1;", ["const"]),
        ("no language", "def f(): pass", []),
    ],
)
def test_every_language_has_its_own_words(language: str, code: str, keywords: list[str]) -> None:
    words = parts(code, highlighted(code, language), "keyword")
    assert [one.strip() for one in words] == keywords


def test_the_blocks_of_an_answer_are_programs() -> None:
    text = "😀 return\n```cpp\nint x; // return\n```\nand\n```\ndef f(): pass\n```\nreturn"
    marks = highlighted_answer(text, "python")
    assert parts(text, marks, "keyword") == ["int", "def", "pass"]
    assert parts(text, marks, "comment") == ["// return\n"]
    assert parts("def f(): 7", highlighted_answer("def f(): 7", "python"), "number") == ["7"]


def test_an_inserted_line_marks_no_other() -> None:
    marked = difference("1\n2\n3 4 5\n", "0\n1\n2 \n3 99 5\n")
    assert marked.actual == [(0, 0, 1), (3, 2, 4)]
    assert marked.expected == [(2, 2, 3)]


def test_lines_with_little_in_common_are_marked_whole() -> None:
    marked = difference("abc\nx", "1 2 3 4\nx")
    assert marked.expected == [(0, 0, 3)]
    assert marked.actual == [(0, 0, 7)]


def test_what_is_marked_is_bounded() -> None:
    source = random.Random(1)
    texts = ["\n".join(str(source.random()) for _ in range(50_000)) for _ in range(2)]
    marked = difference(*texts)
    assert max(line for line, *_ in (*marked.expected, *marked.actual)) < 1000
    words = ["a b " * 30_000, "b a " * 30_000]
    assert difference(*words).expected == [(0, 0, 50_000)]
    assert sum(highlighted("x = '" * 100_000, "python")[::2]) <= 50_001
