"""Conversion of SandboxFusion's prompts into rows of the public layouts."""

import ast
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from services.data.rows import Fields
from services.data.rows.sandbox_client import DatasetApiClient, Prompt
from shared.errors import data_error
from shared.schemas import describe

UNKNOWN_DIFFICULTY = "UNKNOWN_DIFFICULTY"


@dataclass(frozen=True, slots=True)
class SandboxLayout:
    """Requests and conversion for a data set of the server's class ``dataset_class``.

    ``page(client, offset, limit)`` gets up to ``limit`` prompts, and an empty list beyond the end;
    ``row(client, place, prompt)`` converts a prompt.
    """

    dataset_class: str
    page: Callable[[DatasetApiClient, int, int], list[Prompt]]
    row: Callable[[DatasetApiClient, str, Prompt], Fields]


class _Labels(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


LabelsT = TypeVar("LabelsT", bound=_Labels)


class _HumanEvalLabels(_Labels):
    task_id: str
    entry_point: str
    test: str
    canonical_solution: str | None = None


class _MbppLabels(_Labels):
    test_setup_code: str
    challenge_test_list: list[str] = []


class _ContestLabels(_Labels):
    name: str = ""
    difficulty: int | str | None = None


def _page(client: DatasetApiClient, offset: int, limit: int) -> list[Prompt]:
    return client.prompts(offset, limit)


def _humaneval(_client: DatasetApiClient, place: str, prompt: Prompt) -> Fields:
    labels = _labels(_HumanEvalLabels, place, prompt)
    return labels.model_dump(exclude_none=True) | {"prompt": prompt.text}


def _mbpp(_client: DatasetApiClient, place: str, prompt: Prompt) -> Fields:
    labels = _labels(_MbppLabels, place, prompt)
    if not isinstance(prompt.id, int):
        raise data_error(place, "MBPP's ids are numbers; check that the table is MBPP's")
    text, tests = content_and_tests(place, prompt.text)
    return labels.model_dump() | {"task_id": prompt.id, "text": text, "test_list": tests}


def _contest(client: DatasetApiClient, place: str, prompt: Prompt) -> Fields:
    """Convert a contest problem; all tests count as private, because the server merges them.

    ``name`` includes the id, because names on the server are not unique.
    """
    labels = _labels(_ContestLabels, place, prompt)
    cases = client.cases(prompt.id)
    return {
        "id": prompt.id,
        "name": f"{labels.name or client.dataset} #{prompt.id}",
        "description": prompt.text,
        "difficulty": _difficulty(labels.difficulty),
        "public_tests": {"input": [], "output": []},
        "private_tests": {
            "input": [case.stdin for case in cases],
            "output": [case.stdout for case in cases],
        },
    }


def _contest_page(client: DatasetApiClient, offset: int, limit: int) -> list[Prompt]:
    """Get prompts without the final sentence that names the programming language.

    The server appends it as a paragraph. It is the paragraph that differs between two languages, so
    its wording does not matter.
    """
    pythons = client.prompts(offset, limit, "python")
    others = client.prompts(offset, limit, "cpp")
    if [prompt.id for prompt in pythons] != [prompt.id for prompt in others]:
        raise data_error(client.place, "the data set changed while it was fetched; run again")
    return [_contest_prompt(client, *both) for both in zip(pythons, others, strict=True)]


def _contest_prompt(client: DatasetApiClient, python: Prompt, other: Prompt) -> Prompt:
    content, break_, sentence = python.text.rpartition("\n\n")
    other_content, _, other_sentence = other.text.rpartition("\n\n")
    if not break_ or content != other_content or sentence == other_sentence:
        cause = "the prompt does not end with a paragraph about the language"
        advice = "check that the table is a CommonOJDataset"
        raise data_error(f"{client.place} id {python.id!r}", f"{cause}; {advice}")
    return Prompt(python.id, content, python.labels)


def _difficulty(value: int | str | None) -> int | str | None:
    """Convert CodeContests' words to lower case; single letters are Codeforces' difficulties."""
    if value == UNKNOWN_DIFFICULTY:
        return "unknown"
    return value.lower() if isinstance(value, str) and len(value) > 1 else value


def _labels(kind: type[LabelsT], place: str, prompt: Prompt) -> LabelsT:
    try:
        return kind.model_validate(prompt.labels)
    except ValidationError as error:
        cause = f"labels: {describe(error)}; check that source.dataset has this layout"
        raise data_error(place, cause) from None


LAYOUTS: dict[str, SandboxLayout] = {
    "humaneval": SandboxLayout("HumanEvalDataset", _page, _humaneval),
    "mbpp": SandboxLayout("MBPPDataset", _page, _mbpp),
    "code_contests": SandboxLayout("CommonOJDataset", _contest_page, _contest),
}


PREFIX = "You are an expert Python programmer, and here is your task: "
BEFORE_TESTS = " Your code should pass these tests:\n\n"
FEW_SHOT_END = "[BEGIN]\n"  # valid Python, but not a test


def content_and_tests(place: str, prompt: str) -> tuple[str, list[str]]:
    """Split MBPP's prompt into the text of the problem and its tests.

    Source of the format: SandboxFusion 469de08, ``sandbox/datasets/mbpp.py``, without few shots.

    Raises:
        DataError: The prompt has another format.
    """
    if prompt.startswith(PREFIX) and not prompt.endswith(FEW_SHOT_END):
        # The text may contain the sentence, too; the tests follow the one before valid Python.
        for sentence in re.finditer(re.escape(BEFORE_TESTS), prompt):
            tests = split_tests(prompt[sentence.end() :])
            if tests is not None:
                return prompt[len(PREFIX) : sentence.start()], tests
    cause = "the prompt does not have SandboxFusion's format for MBPP, with tests in Python"
    raise data_error(place, f"{cause}; use a server with the published MBPPDataset")


def split_tests(joined: str) -> list[str] | None:
    """Split joined tests; returns None if they are not Python, an empty list without a statement.

    A test ends with the line that ends an assertion. Other statements belong to the next test;
    statements after the last assertion belong to the last test. The tests joined by newlines equal
    ``joined``.
    """
    body = _statements(joined)
    if not body:
        return body if body is None else []
    lines = _lines(joined)
    tests: list[str] = []
    start = 0
    for end in sorted({_end(node) for node in body if isinstance(node, ast.Assert)})[:-1]:
        # Another statement may begin after a semicolon; a lone "\r" does not separate tests.
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
            warnings.simplefilter("ignore")  # invalid escapes such as "\d" are in the data
            return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _lines(text: str) -> list[str]:
    """Split into lines as Python's parser counts them, keeping line ends."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text)
