"""Row of the samples table: one judged sample with its generation and its problem's facts."""

import json
from typing import Self

from pydantic import BaseModel, ConfigDict, field_validator

from shared.schemas import Generation, ProblemFacts, Verdict
from shared.statuses import FinalStatus

_MAX_DETAIL = 500
MAX_INTEGER = 2**63 - 1  # of SQLite


class SampleRow(BaseModel):
    """One judged sample. Times are seconds, ``finished_at`` (generated) and ``judged_at`` Unix.

    ``confirmed`` counts cases that ran a second time on an idle sandbox, ``flipped`` how many of
    them changed their outcome.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    problem_id: str
    sample_index: int
    completion_sha256: str
    final_status: FinalStatus
    detail: str | None
    accepted: bool
    pass_ratio: float
    cases_passed: int
    cases_total: int
    cases_not_run: int
    output_tokens: int | None
    gen_time: float | None
    total_judge_time: float
    attempts: int
    confirmed: int
    flipped: int
    replica: str | None
    worker: str | None
    finished_at: float | None
    judged_at: float | None
    difficulty: str
    tags: list[str]
    num_tests: int | None
    prompt_length: int | None

    @field_validator("tags", mode="before")
    @classmethod
    def _from_column(cls, tags: object) -> object:
        return json.loads(tags) if isinstance(tags, str) else tags

    @classmethod
    def of(cls, verdict: Verdict, generation: Generation | None, facts: ProblemFacts) -> Self:
        return cls(
            **verdict.model_dump(include=_OF_VERDICT),
            detail=None if verdict.detail is None else verdict.detail[:_MAX_DETAIL],
            output_tokens=_storable(generation.output_tokens) if generation else None,
            gen_time=generation.gen_time if generation else None,
            replica=generation.replica if generation else None,
            finished_at=generation.finished_at if generation else None,
            difficulty=facts.difficulty,
            tags=list(facts.tags),
            num_tests=facts.num_tests,
            prompt_length=facts.prompt_length,
        )

    def columns(self) -> tuple[object, ...]:
        """Return the values as SQLite stores them, in the order of ``COLUMNS``."""
        values = {
            **self.__dict__,
            "tags": json.dumps(self.tags),
            "final_status": str(self.final_status),
        }
        return tuple(values[name] for name in COLUMNS)


_OF_VERDICT = set(Verdict.model_fields) & set(SampleRow.model_fields) - {"detail"}
COLUMNS = tuple(SampleRow.model_fields)


def _storable(count: int | None) -> int | None:
    """Drop a number that SQLite cannot store: a generator may report any number."""
    return count if count is not None and count <= MAX_INTEGER else None
