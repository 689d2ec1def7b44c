"""Rows of samples and problems, and the records with all of their texts."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from functools import cache
from typing import Self

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticSerializationError

from services.aggregator.index.search import put_prompt
from services.aggregator.index.signatures import excerpt, signature, signature_id
from shared.analysis.runs import ProblemNote
from shared.outlines import ProblemOutline
from shared.schemas import Generation, ProblemFacts, SampleId, Verdict, without_surrogates
from shared.statuses import ExtractionReason, FinalStatus
from shared.text import pack, unpack

ProblemKey = tuple[str, str]
"""Data set and id of a problem."""
_OF_PROBLEM = "WHERE run_id = ? AND dataset = ? AND problem_id = ?"
_MAX_DETAIL = 500
_MAX_REASON = 100
MAX_INTEGER = 2**63 - 1  # of SQLite


class SampleRow(BaseModel):
    """One judged sample. Times are seconds, ``finished_at`` (generated) and ``judged_at`` Unix.

    ``confirmed`` counts cases that ran a second time on an idle sandbox, ``flipped`` how many of
    them changed their outcome. ``cpu_time`` is in seconds, ``peak_memory`` in bytes. ``failure`` is
    the signature of a failure and ``failure_id`` its id (``index.signatures``), ``stderr`` the end
    of the first failed case's standard error.
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
    finish_reason: str | None
    extraction: ExtractionReason | None
    cpu_time: float | None
    peak_memory: int | None
    failure: str | None
    failure_id: str | None
    stderr: str | None

    @field_validator("tags", mode="before")
    @classmethod
    def _from_column(cls, tags: object) -> object:
        return json.loads(tags) if isinstance(tags, str) else tags

    @classmethod
    def of(cls, verdict: Verdict, generation: Generation | None, facts: ProblemFacts) -> Self:
        failure, case = signature(verdict), verdict.first_failed_case
        reason = generation.finish_reason if generation else None
        return cls(
            **{name: getattr(verdict, name) for name in _OF_VERDICT},
            detail=None if verdict.detail is None else verdict.detail[:_MAX_DETAIL],
            output_tokens=_storable(generation.output_tokens) if generation else None,
            gen_time=generation.gen_time if generation else None,
            replica=generation.replica if generation else None,
            finished_at=generation.finished_at if generation else None,
            difficulty=facts.difficulty,
            tags=list(facts.tags),
            num_tests=facts.num_tests,
            prompt_length=facts.prompt_length,
            finish_reason=reason and without_surrogates(reason[:_MAX_REASON]),
            extraction=verdict.code.reason if verdict.code else None,
            peak_memory=_storable(verdict.peak_memory),
            failure=failure,
            failure_id=failure and signature_id(failure),
            stderr=excerpt(case.stderr) if case else None,
        )

    def columns(self) -> tuple[object, ...]:
        """Return the values as SQLite stores them, in the order of ``COLUMNS``."""
        values = {
            **self.__dict__,
            "tags": json.dumps(self.tags),
            "final_status": str(self.final_status),
            "extraction": self.extraction and str(self.extraction),
        }
        return tuple(values[name] for name in COLUMNS)


_OF_VERDICT = set(Verdict.model_fields) & set(SampleRow.model_fields) - {"detail", "peak_memory"}
COLUMNS = tuple(SampleRow.model_fields)


def read_rows(
    connection: sqlite3.Connection, source: str, values: Sequence[object]
) -> list[SampleRow]:
    """Select rows of ``samples``; ``source`` is what follows FROM."""
    selected = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM {source}", values)
    return [SampleRow.model_validate(dict(row)) for row in selected]


def read_answers(
    connection: sqlite3.Connection, run_id: int, problem: ProblemKey
) -> list[SampleRow]:
    """Read the judged answers of a run to a problem."""
    source = f"samples {_OF_PROBLEM} ORDER BY sample_index"
    return read_rows(connection, source, (run_id, *problem))


def _storable(count: int | None) -> int | None:
    """Drop a number that SQLite cannot store: a generator may report any number."""
    return count if count is not None and count <= MAX_INTEGER else None


class Record(BaseModel):
    """A judged sample with all of its texts, as the index keeps it."""

    model_config = ConfigDict(frozen=True)

    verdict: Verdict
    generation: Generation | None

    def packed(self) -> bytes:
        try:
            return pack(self.model_dump_json())
        except PydanticSerializationError:  # lone surrogates, which JSON may contain
            text = json.dumps(self.model_dump(mode="json"), ensure_ascii=False)
            return pack(without_surrogates(text))


def read_sample(connection: sqlite3.Connection, run_id: int, sample: SampleId) -> Record | None:
    """Read a judged sample; None if it is not in the index."""
    row = connection.execute(
        "SELECT record FROM records JOIN samples USING (id) "
        "WHERE run_id = ? AND dataset = ? AND problem_id = ? AND sample_index = ?",
        (run_id, sample.dataset, sample.problem_id, sample.sample_index),
    ).fetchone()
    return None if row is None else Record.model_validate_json(unpack(row[0]))


# Problems


_PUT_OUTLINE = (
    "INSERT INTO problems (run_id, dataset, problem_id, digest, facts, outline) "
    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "digest = excluded.digest, facts = excluded.facts, outline = excluded.outline RETURNING id"
)


def put_outlines(
    connection: sqlite3.Connection,
    run_id: int,
    outlines: Iterable[ProblemOutline],
    *,
    searched: bool,
) -> None:
    for outline in outlines:
        facts, packed = json.dumps(astuple(outline.facts)), pack(outline.model_dump_json())
        values = (run_id, outline.dataset, outline.problem_id, outline.digest, facts, packed)
        (number,) = connection.execute(_PUT_OUTLINE, values).fetchone()
        if searched:
            put_prompt(connection, number, "\n".join(outline.texts))


def read_outline(
    connection: sqlite3.Connection, run_id: int, problem: ProblemKey
) -> ProblemOutline | None:
    row = connection.execute(
        f"SELECT outline FROM problems {_OF_PROBLEM}", (run_id, *problem)
    ).fetchone()
    return None if row is None else ProblemOutline.model_validate_json(unpack(row[0]))


def read_facts(
    connection: sqlite3.Connection, run_id: int, problems: Iterable[ProblemKey]
) -> dict[ProblemKey, ProblemFacts]:
    """Facts of the problems whose outline is known."""
    select = f"SELECT facts FROM problems {_OF_PROBLEM}"
    return {
        problem: _facts(row["facts"])
        for problem in problems
        if (row := connection.execute(select, (run_id, *problem)).fetchone())
    }


def read_problems(connection: sqlite3.Connection, run_id: int) -> dict[str, dict[str, ProblemNote]]:
    """What a comparison knows of a run's problems, by data set and problem id."""
    facts_of = cache(_facts)  # few are different
    notes: dict[str, dict[str, ProblemNote]] = {}
    for dataset, problem_id, digest, facts in connection.execute(
        "SELECT dataset, problem_id, digest, facts FROM problems WHERE run_id = ?", (run_id,)
    ):
        notes.setdefault(dataset, {})[problem_id] = ProblemNote(digest, facts_of(facts))
    return notes


def _facts(stored: str) -> ProblemFacts:
    difficulty, tags, *others = json.loads(stored)
    return ProblemFacts(difficulty, tuple(tags), *others)
