"""Completions in a table that verl wrote: the column ``responses`` of ``main_generation_server``.

The other columns are those of the prompts that it read, as ``plumb data export`` or somebody else
wrote them. ``data.output_path`` writes such a table, too.
Source of the layout: verl 0.9.1, verl/trainer/main_generation_server.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from shared.completions import RecordedCompletion
from shared.config import Config
from shared.datasets import canonicalize, ground_truth, parquet_rows, record_fields, row_name
from shared.errors import data_error
from shared.prompts import chat_messages
from shared.reference import ProblemReference, is_reference, problem_digest
from shared.schemas import Problem

_RESPONSES = "responses"
_COLUMNS = (
    *("data_source", "reward_model", "extra_info", "prompt"),
    *("dataset", "problem_id", "task_id"),
)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row: its problem, the digest in its reference, its responses, their indices if given."""

    dataset: str | None
    problem_id: str
    digest: str | None
    responses: list[str]
    indices: list[int] | None


def read_responses(
    path: str, problems: Sequence[Problem], config: Config | None = None
) -> Iterator[RecordedCompletion]:
    """Read the responses of a parquet file: one or n per row, as a text or a list of texts.

    A row names its problem by the reference in ``reward_model.ground_truth`` or in ``extra_info``,
    else by ``problem_id`` (with ``dataset``, or ``data_source`` where that is a data set) in
    ``extra_info`` or in columns, else by its prompt, as text or messages. Responses are numbered
    from 0 within each problem, or by ``extra_info.sample_indices``. A row with an empty list or
    null has no response; a null in a list is an empty one.

    Args:
        path: A local path or any fsspec URL.
        problems: The problems to be judged, which references are compared with.
        config: Has the templates by which a prompt may have been made of a problem.

    Raises:
        DataError: While iterating: the file or a row cannot be used, no row has a response, or a
            problem is not the one that the response was generated for.
    """
    known = _Problems(problems, config)
    indices: dict[tuple[str | None, str], Iterator[int]] = {}
    empty = True
    for place, row in _rows(path, known):
        problem = known.by_name.get((row.dataset or "", row.problem_id))
        if problem and row.digest not in (None, problem_digest(problem)):
            cause = f"{row.dataset}/{row.problem_id} has changed since these responses were made"
            raise data_error(place, f"{cause}; export the data and generate again")
        numbers = indices.setdefault((row.dataset, row.problem_id), count())
        for response, number in zip(row.responses, row.indices or numbers, strict=False):
            empty = False
            yield RecordedCompletion(
                problem_id=row.problem_id,
                dataset=row.dataset,
                completion=response,
                sample_index=number,
            )
    if empty:
        raise data_error(path, f"no row has a response in {_RESPONSES!r}; generate them first")


def has_tests(path: str) -> bool:
    """Whether a file is a table with tests, and not with references to those of another file.

    Raises:
        DataError: It cannot be read.
    """
    if not path.endswith(".parquet"):
        return False
    rows = parquet_rows(path, (), ("ground_truth", "reward_model"))
    tests = ground_truth(next(rows, (1, {}))[1])
    return tests is not None and not is_reference(tests)


class _Problems:
    """The problems to be judged, by name or by prompt."""

    def __init__(self, problems: Sequence[Problem], config: Config | None) -> None:
        self.by_name = {(p.dataset, p.problem_id): p for p in problems}
        self.datasets = {problem.dataset for problem in problems}
        self._config = config

    def of_prompt(self, prompt: str, row: tuple[str, str]) -> Problem:
        """Find the problem of a prompt, bare or in its template.

        Where several have it, it is the one that is named like the row: the table is the data set.

        Raises:
            ValueError: No problem, or several, have this prompt.
        """
        same = self._by_prompt.get(canonicalize(prompt), [])
        if len(same) > 1:
            same = [p for p in same if (p.dataset, p.problem_id) == row] or same
        if not same:
            raise ValueError(_NAMELESS)
        if len(same) > 1:
            names = " and ".join(f"{p.dataset}/{p.problem_id}" for p in same[:2])
            raise ValueError(f"names no problem, and its prompt is that of {names}; add problem_id")
        return same[0]

    @cached_property
    def _by_prompt(self) -> dict[str, list[Problem]]:
        prompts: dict[str, list[Problem]] = {}
        for problem in self.by_name.values():
            forms = {canonicalize(problem.prompt)}
            if self._config is not None:
                forms.add(canonicalize(chat_messages(problem, self._config)[-1]["content"]))
            for form in forms:
                prompts.setdefault(form, []).append(problem)
        return prompts


_NAMELESS = (
    "names no problem: neither reward_model.ground_truth nor extra_info has a reference, there is "
    "no problem_id, and no problem of the data has its prompt; generate from a file of plumb data "
    "export"
)


def _rows(path: str, known: _Problems) -> Iterator[tuple[str, _Row]]:
    for number, row in parquet_rows(path, (_RESPONSES,), _COLUMNS):
        place = f"{path}: row {number}"
        try:
            yield place, _row(row, known, row_name(path, number, row))
        except ValueError as error:
            raise data_error(place, str(error)) from None


def _row(values: Mapping[str, object], known: _Problems, name: tuple[str, str]) -> _Row:
    responses = _texts(values[_RESPONSES])
    extra, source = record_fields(values.get("extra_info")), values.get("data_source")
    indices = _indices(extra.get("sample_indices"), len(responses))
    truth = record_fields(values.get("reward_model")).get("ground_truth")
    for text in (truth, extra.get("reference")):
        if isinstance(text, str) and is_reference(text):
            named = ProblemReference.parse(text)
            return _Row(named.dataset, named.problem_id, named.digest, responses, indices)
    for fields in (extra, values):
        problem_id = fields.get("problem_id") or fields.get("task_id")
        if isinstance(problem_id, str) and problem_id:
            dataset = fields.get("dataset") or (source if source in known.datasets else None)
            known_as = dataset if isinstance(dataset, str) else None
            return _Row(known_as, problem_id, None, responses, indices)
    problem = known.of_prompt(_question(values.get("prompt")), name)
    return _Row(problem.dataset, problem.problem_id, None, responses, indices)


def _texts(value: object) -> list[str]:
    """One response, or a list of n; a response without content is empty, null is no response."""
    if value is None:
        return []
    texts = []
    for text in value if isinstance(value, list) else [value]:
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{_RESPONSES} is neither a text nor a list of texts")
        texts.append(text or "")
    return texts


def _indices(value: object, length: int) -> list[int] | None:
    """The numbers of the responses; None unless there is one for each."""
    numbers = value if isinstance(value, list) else []
    numbers = [number for number in numbers if isinstance(number, int) and number >= 0]
    return numbers if len(numbers) == length else None


def _question(prompt: object) -> str:
    """A prompt as text, or its last user message.

    Raises:
        ValueError: It is neither a text nor messages.
    """
    if isinstance(prompt, str):
        return prompt
    for message in reversed(prompt) if isinstance(prompt, list) else ():
        fields = record_fields(message)
        if fields.get("role") == "user" and isinstance(content := fields.get("content"), str):
            return content
    raise ValueError(_NAMELESS)
