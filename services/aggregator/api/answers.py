"""Conversion of index rows and ledger records to response models of the API."""

import sqlite3
from collections.abc import Sequence

from pydantic import ValidationError

from services.aggregator.api.models import (
    CasePage,
    CasesQuery,
    DatasetDetail,
    ExtractedCode,
    PassRatioCounts,
    Percentiles,
    Progress,
    RunDetail,
    RunSummary,
    SampleDetail,
    TimelineAnswer,
)
from services.aggregator.index.overview import (
    PERCENTS,
    DatasetFigures,
    FiguresCache,
    IndexedRun,
    Timeline,
    rate,
    results,
)
from shared.analysis.statistics import ratio
from shared.case_records import SampleCases, failing_first, readable_tests
from shared.ledger import Ledger
from shared.outlines import ProblemOutline
from shared.run_record import Provenance, RunMeta
from shared.schemas import Generation, SampleId, Verdict

_SHOWN = ("config", "versions", "state")


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
    )


def run_detail(connection: sqlite3.Connection, run: IndexedRun, figures: FiguresCache) -> RunDetail:
    found = figures.of(connection, run)
    published = results(connection, run)
    config, versions = run.facts.get("config"), run.facts.get("versions")
    return RunDetail(
        summary=run_summary(connection, run),
        config=config if isinstance(config, dict) else None,
        versions=versions if isinstance(versions, dict) else None,
        facts={name: value for name, value in run.facts.items() if name not in _SHOWN},
        datasets={name: _dataset(run, name, found[name]) for name in run.datasets if name in found},
        metrics=published.get("metrics"),
        slices=published.get("slices"),
    )


def sample_detail(ledger: Ledger, sample: SampleId) -> SampleDetail | None:
    """Read a sample from the ledger; None if it does not exist."""
    problem = ledger.problem(sample.dataset, sample.problem_id)
    generation, verdict = ledger.completion(sample), ledger.verdict(sample)
    if generation is None and verdict is None:
        return None
    outline = ProblemOutline.of(problem, _provenance(ledger)) if problem else None
    return SampleDetail(
        run=ledger.run,
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


def _provenance(ledger: Ledger) -> Provenance:
    """What a run recorded of its prompts; nothing if another version wrote it otherwise."""
    try:
        return Provenance.model_validate(ledger.meta_document())
    except ValidationError:
        return Provenance()


def case_page(ledger: Ledger, sample: SampleId, query: CasesQuery) -> CasePage | None:
    """Read recorded cases of a sample from the ledger; None if the sample does not exist."""
    stored = next((packed for _, packed in ledger.cases([sample])), None)
    if stored is None:
        if ledger.completion(sample) is None and ledger.verdict(sample) is None:
            return None
        return CasePage(recorded=None, total=0, cases=[], next=None)
    found = SampleCases.unpacked(stored)
    end = query.offset + query.limit
    shown = tuple(failing_first(found.cases)[query.offset : end])
    tests = readable_tests(ledger.problem(sample.dataset, sample.problem_id))
    return CasePage(
        recorded=found.recorded,
        total=len(found.cases),
        cases=list(found.model_copy(update={"cases": shown}).of(sample, tests)),
        next=end if end < len(found.cases) else None,
    )


def extracted(generation: Generation | None, verdict: Verdict | None) -> ExtractedCode | None:
    """Return the judged code as recorded in the verdict; None if it is not recorded."""
    if generation is None or verdict is None or (code := verdict.code) is None:
        return None
    return ExtractedCode(text=code.read(generation.completion), found=code.reason)


def timeline_answer(timeline: Timeline | None) -> TimelineAnswer:
    if timeline is None:
        return TimelineAnswer(start=None, width=None, generated=[], judged=[])
    return TimelineAnswer(
        start=timeline.start,
        width=timeline.width,
        generated=timeline.generated,
        judged=timeline.judged,
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
