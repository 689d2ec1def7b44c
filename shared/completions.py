"""Recorded completions of a model, read from JSONL files."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from shared.errors import data_error
from shared.foreign_json import parse_record, read_lines
from shared.schemas import describe, without_surrogates
from shared.statuses import TokenSource

_COMPLETION = ("completion", "response", "solution")
_MBPP = re.compile(r"mbpp[_/](\d+)", re.IGNORECASE | re.ASCII)


def _thoughts(value: object) -> str | None:
    """A text; other people's files have settings of the same name."""
    return without_surrogates(value) if isinstance(value, str) else None


def _source(value: object) -> str | None:
    return "reasoning" if value == "reasoning" else None


class RecordedCompletion(BaseModel):
    """A recorded completion; unknown fields are ignored, and None is an absent field.

    The lines of human-eval's ``samples.jsonl`` and of EvalPlus (``task_id`` with ``completion`` or
    ``solution``) are completions, too.

    Lines without ``sample_index`` are numbered in their order, by problem. ``gen_time`` is in
    seconds. Without ``dataset`` the ``problem_id`` alone identifies the problem.
    ``output_tokens_from``, ``completion_from`` and ``reasoning`` are as in
    :class:`~shared.schemas.Generation`; the last may be called ``reasoning_content``.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    problem_id: str = Field(min_length=1, validation_alias=AliasChoices("problem_id", "task_id"))
    completion: str = Field(validation_alias=AliasChoices(*_COMPLETION))
    completion_from: Annotated[Literal["reasoning"] | None, BeforeValidator(_source)] = None
    reasoning: Annotated[str | None, BeforeValidator(_thoughts)] = Field(
        default=None, validation_alias=AliasChoices("reasoning", "reasoning_content")
    )
    dataset: str | None = None
    sample_index: int = Field(default=0, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    output_tokens_from: TokenSource | None = None
    prompt_tokens: int | None = Field(default=None, ge=0)
    gen_time: float | None = Field(default=None, ge=0)
    finish_reason: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_none(cls, fields: object) -> object:
        # Arrow completes the rows of different formats to the same fields.
        if not isinstance(fields, dict) or None not in fields.values():
            return fields
        present = {name: value for name, value in fields.items() if value is not None}
        null = [name for name in _COMPLETION if name in fields]
        if null and not any(name in present for name in null):
            raise ValueError(f'{null[0]} is null; write "" for an empty answer, or drop the line')
        return present


def read_completions(path: str) -> Iterator[RecordedCompletion]:
    """Read a JSONL file of completions (gzip if the name ends in ``.gz``), line by line.

    Completions of a problem that have no ``sample_index`` are numbered in their order. ``path`` is
    local or any fsspec URL.

    Raises:
        DataError: While iterating: the file or a line cannot be used; the message names both.
    """
    samples = Counter[tuple[str | None, str]]()
    for number, line in read_lines(path):
        place = f"{path}:{number}"
        try:
            recorded = parse_record(RecordedCompletion, place, line)
        except ValidationError as error:
            raise data_error(place, f"not a completion: {describe(error)}") from None
        if "sample_index" not in recorded.model_fields_set:
            problem = recorded.dataset, recorded.problem_id
            if index := samples[problem]:
                recorded = recorded.model_copy(update={"sample_index": index})
            samples[problem] += 1
        yield recorded


def evalplus_id(problem_id: str) -> str | None:
    """Return the id of a problem in EvalPlus (``Mbpp/3`` for ``mbpp_3``), or None."""
    if problem_id.startswith("HumanEval/"):
        return problem_id
    match = _MBPP.fullmatch(problem_id)
    return f"Mbpp/{int(match[1])}" if match else None
