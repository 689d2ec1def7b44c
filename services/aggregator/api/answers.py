"""Conversion of index rows and samples' records to response models of the API."""

import sqlite3
from collections.abc import Mapping, Sequence

from services.aggregator.api.models import (
    CasePage,
    CasesQuery,
    DatasetDetail,
    ExtractedCode,
    FacetCounts,
    FacetsAnswer,
    FailureGroupAnswer,
    FailuresAnswer,
    FoldersAnswer,
    PassRatioCounts,
    Percentiles,
    Progress,
    RunDetail,
    RunSummary,
    SampleDetail,
    SearchedFolder,
    UnreadableFile,
    ValueCount,
)
from services.aggregator.folders.watch import FoldersStatus
from services.aggregator.index.facets import Facets
from services.aggregator.index.failures import FailureGroups
from services.aggregator.index.overview import (
    PERCENTS,
    DatasetFigures,
    IndexedRun,
    notes,
    rate,
    results,
)
from services.aggregator.sources import SampleSource
from shared.analysis.statistics import ratio
from shared.redaction import redact_address
from shared.run_record import RunMeta
from shared.schemas import Generation, SampleId, Verdict

_LISTED = 100
_SHOWN = ("config", "versions", "state")


def latest_runs(runs: Sequence[IndexedRun], most: int) -> Sequence[IndexedRun]:
    """At most so many runs in their order: those that are not finished, then the latest."""
    if len(runs) <= most:
        return runs

    def age(run: IndexedRun) -> tuple[bool, float]:
        meta = run.meta()
        return run.state is not None and run.state.final, -((meta and meta.started_at) or 0.0)

    kept = {run.run for run in sorted(runs, key=age)[:most]}
    return [run for run in runs if run.run in kept]


def run_summary(connection: sqlite3.Connection, run: IndexedRun) -> RunSummary:
    speed = rate(connection, run)
    left = max(0, run.samples_planned - run.verdicts)
    meta = run.meta() or RunMeta()
    return RunSummary(
        run=run.run,
        name=meta.name or None,
        state=run.state,
        model=meta.model or meta.config.actor_rollout_ref.model.path or None,
        started_at=meta.started_at,
        finished_at=meta.finished_at,
        verdicts=run.verdicts,
        datasets=run.statuses,
        progress=Progress(
            planned=run.samples_planned,
            generated=run.completions,
            judged=run.verdicts - run.api_errors,
            api_errors=run.api_errors,
            ratio=_share(run.verdicts, run.samples_planned),
        ),
        rate=speed,
        seconds_left=ratio(left, speed) if speed else None,
        folder=None if run.folder is None else redact_address(run.folder),
        reading=run.reading,
    )


def run_detail(
    connection: sqlite3.Connection, run: IndexedRun, figures: Mapping[str, DatasetFigures]
) -> RunDetail:
    published = results(connection, run)
    facts = run.facts
    config, versions = facts.get("config"), facts.get("versions")
    return RunDetail(
        summary=run_summary(connection, run),
        config=config if isinstance(config, dict) else None,
        versions=versions if isinstance(versions, dict) else None,
        facts={name: value for name, value in facts.items() if name not in _SHOWN},
        datasets={
            name: _dataset(run, name, figures[name]) for name in run.datasets if name in figures
        },
        metrics=published.get("metrics"),
        slices=published.get("slices"),
        notes=notes(connection, run),
    )


def sample_detail(run: str, source: SampleSource, sample: SampleId) -> SampleDetail | None:
    """Read a sample; None if it does not exist."""
    generation, verdict = source.generation(sample), source.verdict(sample)
    if generation is None and verdict is None:
        return None
    outline = source.outline((sample.dataset, sample.problem_id))
    return SampleDetail(
        run=run,
        dataset=sample.dataset,
        problem_id=sample.problem_id,
        sample_index=sample.sample_index,
        difficulty=outline.difficulty if outline else None,
        tags=list(outline.tags) if outline else [],
        quality=outline.quality if outline else None,
        prompt=outline.prompt if outline else None,
        messages=list(outline.messages) if outline and outline.messages else None,
        generation=generation,
        code=extracted(generation, verdict),
        verdict=verdict,
    )


def case_page(source: SampleSource, sample: SampleId, query: CasesQuery) -> CasePage | None:
    """Read recorded cases of a sample; None if the sample does not exist."""
    found = source.cases(sample, query.offset, query.limit)
    if found is None:
        return None
    end = query.offset + query.limit
    return CasePage(
        recorded=found.recorded,
        total=found.total,
        cases=list(found.cases),
        next=end if end < found.total else None,
    )


def facets_answer(found: Facets) -> FacetsAnswer:
    return FacetsAnswer(
        samples=found.samples,
        facets={
            name: FacetCounts(
                total=one.values,
                counts=[ValueCount(value=value, samples=count) for value, count in one.counts],
            )
            for name, one in found.facets.items()
        },
    )


def failures_answer(found: FailureGroups) -> FailuresAnswer:
    return FailuresAnswer(
        samples=found.failures,
        total=found.groups,
        groups=[
            FailureGroupAnswer(
                id=group.id,
                signature=group.examples[0].failure or "",
                samples=group.samples,
                examples=group.examples,
            )
            for group in found.largest
        ],
    )


def extracted(generation: Generation | None, verdict: Verdict | None) -> ExtractedCode | None:
    """Return the judged code as recorded in the verdict; None if it is not recorded."""
    if generation is None or verdict is None or (code := verdict.code) is None:
        return None
    return ExtractedCode(text=code.read(generation.completion), found=code.reason)


def folders_answer(status: FoldersStatus) -> FoldersAnswer:
    return FoldersAnswer(
        folders=[
            SearchedFolder(folder=one.folder, searched=one.searched, runs=one.runs, error=one.error)
            for one in status.folders
        ],
        waiting=status.waiting,
        unreadable=[
            UnreadableFile(folder=one.folder, reason=one.reason)
            for one in status.unreadable[:_LISTED]
        ],
        unreadable_total=len(status.unreadable),
    )


def _dataset(run: IndexedRun, name: str, figures: DatasetFigures) -> DatasetDetail:
    problems, samples = run.planned.get(name, (0, 0))
    ratios = figures.pass_ratios
    return DatasetDetail(
        planned_problems=problems,
        planned_samples=samples,
        statuses=run.statuses.get(name, {}),
        judged=figures.judged,
        accepted=figures.accepted,
        accepted_at_1=figures.accepted_at_1,
        accepted_at_1_ci95=figures.accepted_at_1_ci95,
        samples_cut=figures.samples_cut,
        pass_ratios=PassRatioCounts(zero=ratios.zero, bins=ratios.bins, one=ratios.one),
        output_tokens=_percentiles(figures.output_tokens),
        gen_time=_percentiles(figures.gen_time),
        total_judge_time=_percentiles(figures.total_judge_time),
    )


def _percentiles(values: Sequence[float | None]) -> Percentiles:
    named = {f"p{percent}": value for percent, value in zip(PERCENTS, values, strict=True)}
    return Percentiles(**named)


def _share(part: int, whole: int) -> float | None:
    """Ratio capped at 1: the ledger may hold samples that are no longer planned."""
    share = ratio(part, whole)
    return None if share is None else min(1.0, share)
