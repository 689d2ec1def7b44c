"""Answers of the API about a run and a sample of it."""

import sqlite3
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from services.aggregator.index.history import DatasetTrend
from services.aggregator.index.overview import DatasetFigures, IndexedRun, notes, unjudged_reasons
from services.aggregator.index.rows import SampleRow, read_answers, read_outline, read_sample
from services.aggregator.marks import SampleMarks
from services.aggregator.qa_logs import shorten_case
from shared.analysis.catalogue import MetricInfo, metrics_of
from shared.analysis.statistics import Metrics, ratio
from shared.outlines import ProblemOutline
from shared.redaction import redact_address
from shared.run_record import JsonObject, OutageReport, RunState
from shared.schemas import Generation, SampleId, Verdict
from shared.statuses import ExtractionReason, FinalStatus
from shared.text import shorten_middle

_IN_SUMMARY = ("state", "runner", "locked")


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
    scores: Mapping[str, DatasetTrend]
    progress: Progress
    seconds_left: float | None
    stopped_at: float | None
    outages: list[OutageReport]
    folder: str | None
    reading: bool

    @classmethod
    def of(cls, run: IndexedRun, scores: Mapping[str, DatasetTrend] | None = None) -> Self:
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
    """A run with its metadata and live figures.

    ``facts`` has config, versions and provenance. ``metrics`` and ``slices`` are the contents of
    ``phase0_summary.json`` (metrics by data set) and ``slices.json`` (by data set, dimension and
    bucket); None before the run is published. ``catalogue`` declares the metrics in their order.
    ``unjudged`` counts the samples that could not be judged by reason. ``notes`` say what of the
    run's folder cannot be read.
    """

    summary: RunSummary
    facts: JsonObject
    datasets: Mapping[str, DatasetFigures]
    metrics: dict[str, Metrics] | None
    catalogue: list[MetricInfo]
    slices: dict[str, dict[str, dict[str, Metrics]]] | None
    unjudged: dict[str, int]
    notes: list[str]

    @classmethod
    def of(
        cls,
        connection: sqlite3.Connection,
        run: IndexedRun,
        figures: Mapping[str, DatasetFigures],
        results: Mapping[str, Any],
    ) -> Self:
        """``results`` are its published ``metrics`` and ``slices``, if there are any."""
        metrics = results.get("metrics")
        return cls(
            summary=RunSummary.of(run),
            facts={name: value for name, value in run.facts.items() if name not in _IN_SUMMARY},
            datasets=figures,
            metrics=metrics,
            catalogue=metrics_of(name for values in (metrics or {}).values() for name in values),
            slices=results.get("slices"),
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
    """A sample with its problem, completion, code and verdict; missing parts are None.

    ``code`` is also None if nothing was run, if SandboxFusion extracted it (``submit``), or if an
    older version wrote the verdict and did not record it. ``answers`` are the run's to the same
    problem, this one included.
    """

    outline: ProblemOutline | None
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
        if outline := read_outline(connection, run.id, problem):
            sent = outline.messages and tuple(
                message.model_copy(update={"content": shorten(message.content)})
                for message in outline.messages
            )
            texts = {"prompt": shorten(outline.prompt), "messages": sent}
            outline = outline.model_copy(update=texts)
        generation, verdict = record.generation, record.verdict
        case = verdict.first_failed_case and shorten_case(verdict.first_failed_case, most)
        completion, code = "", None
        if generation:
            completion = shorten(generation.completion)
            if verdict.code:
                source = shorten(verdict.code.read(generation.completion))
                code = ExtractedCode(source, verdict.code.reason)
            generation = generation.model_copy(update={"completion": completion})
        language = run.language(sample.dataset) if highlighted else None
        return cls(
            outline=outline,
            generation=generation,
            code=code,
            verdict=verdict.model_copy(update={"first_failed_case": case}),
            marks=SampleMarks.of(completion, code.text if code else "", case, language),
            answers=read_answers(connection, run.id, problem) if answers else [],
        )
