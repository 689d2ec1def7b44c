"""Answers of the API about a run and a sample of it."""

import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self, cast

from services.aggregator.index.history import RunScore
from services.aggregator.index.overview import (
    DatasetFigures,
    IndexedRun,
    notes,
    unjudged_reasons,
)
from services.aggregator.index.rows import SampleRow, read_answers, read_outline, read_sample
from services.aggregator.marks import SampleMarks
from services.aggregator.qa_logs import shorten_case
from shared.analysis.catalogue import MetricInfo, metrics_of
from shared.analysis.statistics import MetricValue, ratio
from shared.redaction import redact_address
from shared.run_record import JsonObject, OutageReport, RunState
from shared.schemas import ChatMessage, Generation, SampleId, Verdict
from shared.statuses import ExtractionReason, FinalStatus
from shared.text import shorten_middle

_SHOWN = ("config", "versions", "state", "runner", "locked")


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run in samples. ``ratio``: share of planned samples that have a verdict."""

    planned: int
    generated: int
    judged: int
    api_errors: int
    ratio: float | None

    @classmethod
    def of(cls, run: IndexedRun) -> Self:
        planned, verdicts, errors = run.samples_planned, run.verdicts, run.api_errors
        share = ratio(verdicts, planned)
        # At most 1: the ledger may hold samples that are no longer planned.
        share = None if share is None else min(1.0, share)
        return cls(planned, run.completions, verdicts - errors, errors, share)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """State and progress of a run.

    ``verdicts`` counts samples with a verdict of any kind, ``datasets`` by data set and status.
    ``scores`` are only in the list of runs.

    ``seconds_left`` is the runner's estimate, ``outages`` the services that it waits for. A run
    whose runner was killed has ``stopped_at``. Times are Unix seconds. ``folder`` has the
    artifacts. ``reading`` says that a finished run is being read from it, and the counts are those
    so far.
    """

    run: str
    name: str | None
    state: RunState | None
    model: str | None
    temperature: float
    n: int
    started_at: float | None
    finished_at: float | None
    verdicts: int
    datasets: dict[str, dict[FinalStatus, int]]
    scores: Mapping[str, RunScore]
    progress: Progress
    seconds_left: float | None
    stopped_at: float | None
    outages: list[OutageReport]
    folder: str | None
    reading: bool

    @classmethod
    def of(cls, run: IndexedRun, scores: Mapping[str, RunScore] | None = None) -> Self:
        meta, locked = run.meta, run.facts.get("locked")
        report = meta.runner if run.state is RunState.RUNNING else None
        rollout = meta.config.actor_rollout_ref.rollout
        return cls(
            run=run.run,
            name=meta.name or None,
            state=run.state,
            model=run.model,
            started_at=meta.started_at,
            finished_at=meta.finished_at,
            verdicts=run.verdicts,
            temperature=rollout.temperature,
            n=rollout.n,
            datasets=run.statuses,
            scores=scores or {},
            progress=Progress.of(run),
            seconds_left=report.seconds_left if report and locked else None,
            stopped_at=report.at if report and locked is False else None,
            outages=list(report.outages) if report and locked else [],
            folder=redact_address(run.folder or meta.output) or None,
            reading=run.reading,
        )


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with its config, versions, other metadata, and live figures.

    ``metrics`` and ``slices`` are the contents of ``phase0_summary.json`` (metrics by data set) and
    ``slices.json`` (by data set, dimension and bucket); None before the run is published.
    ``catalogue`` declares the metrics in their order. ``unjudged`` counts the samples that could
    not be judged by reason. ``notes`` say what of the run's folder cannot be read.
    """

    summary: RunSummary
    config: JsonObject | None
    versions: JsonObject | None
    facts: JsonObject
    datasets: Mapping[str, DatasetFigures]
    metrics: dict[str, dict[str, MetricValue]] | None
    catalogue: list[MetricInfo]
    slices: dict[str, dict[str, dict[str, dict[str, MetricValue]]]] | None
    unjudged: dict[str, int]
    notes: list[str]

    @classmethod
    def of(
        cls,
        connection: sqlite3.Connection,
        run: IndexedRun,
        figures: Mapping[str, DatasetFigures],
        published: JsonObject,
    ) -> Self:
        """``published`` are its ``metrics`` and ``slices``, if there are any."""
        facts = run.facts
        metrics = cast("dict[str, dict[str, MetricValue]] | None", published.get("metrics"))
        config, versions = facts.get("config"), facts.get("versions")
        return cls(
            summary=RunSummary.of(run),
            config=config if isinstance(config, dict) else None,
            versions=versions if isinstance(versions, dict) else None,
            facts={name: value for name, value in facts.items() if name not in _SHOWN},
            datasets=figures,
            metrics=metrics,
            catalogue=metrics_of(name for one in (metrics or {}).values() for name in one),
            slices=cast(
                "dict[str, dict[str, dict[str, dict[str, MetricValue]]]] | None",
                published.get("slices"),
            ),
            unjudged=unjudged_reasons(connection, run),
            notes=notes(connection, run),
        )


@dataclass(frozen=True, slots=True)
class ExtractedCode:
    """The judged code of a completion (may be empty), and how it was extracted."""

    text: str
    found: ExtractionReason


@dataclass(frozen=True, slots=True)
class SampleDetail:
    """A sample with prompt, completion, code and verdict; missing parts are None.

    ``messages`` are what the model was sent, as far as the run recorded it. ``quality`` has the
    findings of the data's audit. ``code`` is also None if nothing was run, if
    SandboxFusion extracted it (``submit``), or if an older version wrote the verdict and did not
    record it. ``answers`` are the run's to the same problem, this one included.
    """

    run: str
    dataset: str
    problem_id: str
    sample_index: int
    difficulty: str | None
    tags: list[str]
    quality: str | None
    prompt: str | None
    messages: list[ChatMessage] | None
    generation: Generation | None
    code: ExtractedCode | None
    verdict: Verdict
    marks: SampleMarks
    answers: list[SampleRow]

    @classmethod
    def of(
        cls,
        connection: sqlite3.Connection,
        run: IndexedRun,
        sample: SampleId,
        *,
        most: int = sys.maxsize,
        highlighted: bool = True,
        answers: bool = True,
    ) -> Self | None:
        """Read a judged sample; None if it is not in the index.

        Of a text with more than ``most`` characters the middle is left out.
        """
        record = read_sample(connection, run.id, sample)
        if record is None:
            return None
        shorten = partial(shorten_middle, limit=most)
        problem = (sample.dataset, sample.problem_id)
        outline = read_outline(connection, run.id, problem)
        generation, verdict = record.generation, record.verdict
        case = verdict.first_failed_case and shorten_case(verdict.first_failed_case, most)
        text = shorten(generation.completion) if generation else ""
        code = None
        if generation and verdict.code:
            source = verdict.code.read(generation.completion)
            code = ExtractedCode(shorten(source), verdict.code.reason)
        messages = outline.messages if outline else None
        language = run.language(sample.dataset) if highlighted else None
        return cls(
            run=run.run,
            dataset=sample.dataset,
            problem_id=sample.problem_id,
            sample_index=sample.sample_index,
            difficulty=outline.difficulty if outline else None,
            tags=list(outline.tags) if outline else [],
            quality=outline.quality if outline else None,
            prompt=shorten(outline.prompt) if outline else None,
            messages=[
                one.model_copy(update={"content": shorten(one.content)}) for one in messages or ()
            ]
            or None,
            generation=generation and generation.model_copy(update={"completion": text}),
            code=code,
            verdict=verdict.model_copy(update={"first_failed_case": case}),
            marks=SampleMarks.of(text, code.text if code else "", case, language),
            answers=read_answers(connection, run.id, problem) if answers else [],
        )
