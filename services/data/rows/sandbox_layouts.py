"""From SandboxFusion's prompts back to rows in the public layouts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from services.data.rows.sandbox_client import Prompt, SandboxClient
from services.data.rows.sandbox_mbpp import content_and_tests
from shared.reading import data_error
from shared.schemas import describe

Fields = dict[str, Any]

UNKNOWN_DIFFICULTY = "UNKNOWN_DIFFICULTY"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a data set of ``dataset_class`` is asked for, and a prompt made a row.

    ``page``: the prompts from an offset on, at most so many; none beyond the end.
    """

    dataset_class: str
    page: Callable[[SandboxClient, int, int], list[Prompt]]
    row: Callable[[SandboxClient, str, Prompt], Fields]


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


def _page(client: SandboxClient, offset: int, limit: int) -> list[Prompt]:
    return client.prompts(offset, limit)


def _humaneval(_client: SandboxClient, place: str, prompt: Prompt) -> Fields:
    labels = _labels(_HumanEvalLabels, place, prompt)
    return labels.model_dump(exclude_none=True) | {"prompt": prompt.text}


def _mbpp(_client: SandboxClient, place: str, prompt: Prompt) -> Fields:
    labels = _labels(_MbppLabels, place, prompt)
    if not isinstance(prompt.id, int):
        raise data_error(place, "MBPP's ids are numbers; see that the table is one of MBPP")
    text, tests = content_and_tests(place, prompt.text)
    return labels.model_dump() | {"task_id": prompt.id, "text": text, "test_list": tests}


def _contest(client: SandboxClient, place: str, prompt: Prompt) -> Fields:
    """All tests are private ones: the server does not say which its problem shows.

    ``name`` carries the id, for the server does not promise that names differ.
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


def _contest_page(client: SandboxClient, offset: int, limit: int) -> list[Prompt]:
    """Prompts less the sentence at their end that says which language to write in.

    The server puts it after the content, as a paragraph. It is recognized by being another one
    for another language, so its wording does not matter.
    """
    pythons = client.prompts(offset, limit, "python")
    others = client.prompts(offset, limit, "cpp")
    if [prompt.id for prompt in pythons] != [prompt.id for prompt in others]:
        raise data_error(client.place, "the data set changed while it was fetched; run once more")
    return [_contest_prompt(client, *both) for both in zip(pythons, others, strict=True)]


def _contest_prompt(client: SandboxClient, python: Prompt, other: Prompt) -> Prompt:
    content, break_, sentence = python.text.rpartition("\n\n")
    other_content, _, other_sentence = other.text.rpartition("\n\n")
    if not break_ or content != other_content or sentence == other_sentence:
        cause = "the prompt does not end with a paragraph about the language"
        advice = "see that the table is one of CommonOJDataset"
        raise data_error(f"{client.place} id {python.id!r}", f"{cause}; {advice}")
    return Prompt(python.id, content, python.labels)


def _difficulty(value: int | str | None) -> int | str | None:
    """The server has CodeContests' words in capitals; single letters are Codeforces'."""
    if value == UNKNOWN_DIFFICULTY:
        return "unknown"
    return value.lower() if isinstance(value, str) and len(value) > 1 else value


def _labels(kind: type[LabelsT], place: str, prompt: Prompt) -> LabelsT:
    try:
        return kind.model_validate(prompt.labels)
    except ValidationError as error:
        cause = f"labels: {describe(error)}; see that source.dataset has the layout asked for"
        raise data_error(place, cause) from None


LAYOUTS: dict[str, Layout] = {
    "humaneval": Layout("HumanEvalDataset", _page, _humaneval),
    "mbpp": Layout("MBPPDataset", _page, _mbpp),
    "code_contests": Layout("CommonOJDataset", _contest_page, _contest),
}
