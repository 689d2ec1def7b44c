"""MBPP's text and tests out of the prompt that SandboxFusion makes of them."""

import ast
import re
import warnings

from shared.reading import data_error

PREFIX = "You are an expert Python programmer, and here is your task: "
BEFORE_TESTS = " Your code should pass these tests:\n\n"
FEW_SHOT_END = "[BEGIN]\n"  # Python, too, but no test


def content_and_tests(place: str, prompt: str) -> tuple[str, list[str]]:
    """The text of a problem and its tests.

    Source of the form: SandboxFusion 469de08, ``sandbox/datasets/mbpp.py``, without few shots.

    Raises:
        DataError: The prompt has another form.
    """
    if prompt.startswith(PREFIX) and not prompt.endswith(FEW_SHOT_END):
        # A text may hold the sentence itself: the tests are what is Python after it.
        for sentence in re.finditer(re.escape(BEFORE_TESTS), prompt):
            tests = split_tests(prompt[sentence.end() :])
            if tests is not None:
                return prompt[len(PREFIX) : sentence.start()], tests
    cause = "the prompt is not of the form that SandboxFusion gives MBPP, with tests in Python"
    raise data_error(place, f"{cause}; use a server with MBPPDataset as published")


def split_tests(joined: str) -> list[str] | None:
    """The tests out of their lines; None where they are no Python, none where they say nothing.

    A test ends with a line that ends an assertion; statements without one belong to the test that
    follows, and what follows the last to that. The tests joined by newlines are ``joined`` again.
    """
    body = _statements(joined)
    if not body:
        return body if body is None else []
    lines = _lines(joined)
    tests: list[str] = []
    start = 0
    for end in sorted({_end(node) for node in body if isinstance(node, ast.Assert)})[:-1]:
        # After a semicolon the next statement may have begun; a lone "\r" is no join of tests.
        within = any(node.lineno <= end < _end(node) for node in body)
        if not within and lines[end - 1].endswith("\n"):
            tests.append("".join(lines[start:end])[:-1])
            start = end
    return [*tests, "".join(lines[start:])]


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _statements(code: str) -> list[ast.stmt] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about "\d" and the like, which are the data's own
            return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _lines(text: str) -> list[str]:
    """Lines as Python's parser counts them, with their ends."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text)
