"""Conversion of index rows and samples' records to response models of the API."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import cast

from services.aggregator.api.models import (
    ExtractedCode,
    Progress,
    RunDetail,
    RunSummary,
    SampleDetail,
)
from services.aggregator.index.across import answers_of
from services.aggregator.index.history import RunScore
from services.aggregator.index.overview import (
    DatasetFigures,
    IndexedRun,
    notes,
    results,
    unjudged_reasons,
)
from services.aggregator.index.problems import read_outline
from services.aggregator.index.records import read_sample
from services.aggregator.marks import SampleMarks
from shared.analysis.catalogue import metrics_of
from shared.analysis.statistics import ratio
from shared.redaction import redact_address
from shared.run_record import JsonObject, RunMeta, RunState
from shared.schemas import Generation, SampleId, Verdict

_SHOWN = ("config", "versions", "state", "runner", "locked")


def latest_runs(runs: Sequence[IndexedRun], most: int) -> Sequence[IndexedRun]:
    """At most so many runs in their order: those that are not finished, then the latest."""
    if len(runs) <= most:
        return runs

    def age(run: IndexedRun) -> tuple[bool, float]:
        meta = run.meta()
        return run.state is not None and run.state.final, -((meta and meta.started_at) or 0.0)

    kept = {run.run for run in sorted(runs, key=age)[:most]}
    return [run for run in runs if run.run in kept]


def run_summary(run: IndexedRun, scores: Mapping[str, RunScore] | None = None) -> RunSummary:
    meta = run.meta() or RunMeta()
    running, locked = run.state is RunState.RUNNING, run.facts.get("locked")
    report = meta.runner if running else None
    rollout = meta.config.actor_rollout_ref.rollout
    return RunSummary(
        run=run.run,
        name=meta.name or None,
        state=run.state,
        model=meta.model or meta.config.actor_rollout_ref.model.path or None,
        started_at=meta.started_at,
        finished_at=meta.finished_at,
        verdicts=run.verdicts,
        temperature=rollout.temperature,
        n=rollout.n,
        datasets=run.statuses,
        scores=dict(scores or {}),
        progress=Progress(
            planned=run.samples_planned,
            generated=run.completions,
            judged=run.verdicts - run.api_errors,
            api_errors=run.api_errors,
            ratio=_share(run.verdicts, run.samples_planned),
        ),
        seconds_left=report.seconds_left if report and locked else None,
        stopped_at=report.at if report and locked is False else None,
        outages=report.outages if report and locked else [],
        folder=redact_address(run.folder or meta.output) or None,
        reading=run.reading,
    )


def run_detail(
    connection: sqlite3.Connection, run: IndexedRun, figures: Mapping[str, DatasetFigures]
) -> RunDetail:
    published = results(connection, run)
    facts, metrics = run.facts, cast(dict[str, JsonObject], published.get("metrics") or {})
    config, versions = facts.get("config"), facts.get("versions")
    return RunDetail(
        summary=run_summary(run),
        config=config if isinstance(config, dict) else None,
        versions=versions if isinstance(versions, dict) else None,
        facts={name: value for name, value in facts.items() if name not in _SHOWN},
        datasets=dict(figures),
        metrics=published.get("metrics"),
        catalogue=metrics_of(name for one in metrics.values() for name in one),
        slices=published.get("slices"),
        unjudged=unjudged_reasons(connection, run),
        notes=notes(connection, run),
    )


def sample_detail(
    connection: sqlite3.Connection, run: IndexedRun, sample: SampleId
) -> SampleDetail | None:
    """Read a judged sample; None if it is not in the index."""
    record = read_sample(connection, run.id, sample)
    if record is None:
        return None
    problem = (sample.dataset, sample.problem_id)
    outline = read_outline(connection, run.id, problem)
    code = extracted(record.generation, record.verdict)
    return SampleDetail(
        run=run.run,
        dataset=sample.dataset,
        problem_id=sample.problem_id,
        sample_index=sample.sample_index,
        difficulty=outline.difficulty if outline else None,
        tags=list(outline.tags) if outline else [],
        quality=outline.quality if outline else None,
        prompt=outline.prompt if outline else None,
        messages=list(outline.messages) if outline and outline.messages else None,
        generation=record.generation,
        code=code,
        verdict=record.verdict,
        marks=SampleMarks.of(
            record.generation.completion if record.generation else "",
            code.text if code else "",
            record.verdict.first_failed_case,
            language_of(run, sample.dataset),
        ),
        answers=answers_of(connection, run.id, problem),
    )


def language_of(run: IndexedRun, dataset: str) -> str:
    """The language of a data set's programs."""
    return (run.meta() or RunMeta()).config.judge.for_dataset(dataset).language


def extracted(generation: Generation | None, verdict: Verdict | None) -> ExtractedCode | None:
    """Return the judged code as recorded in the verdict; None if it is not recorded."""
    if generation is None or verdict is None or (code := verdict.code) is None:
        return None
    return ExtractedCode(text=code.read(generation.completion), found=code.reason)


def _share(part: int, whole: int) -> float | None:
    """Ratio capped at 1: the ledger may hold samples that are no longer planned."""
    share = ratio(part, whole)
    return None if share is None else min(1.0, share)
