"""Publishing: a judged run's artifacts, written in one pass over the ledger; idempotent."""

import gzip
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from services.aggregator.index.database import Database
from services.aggregator.qa_logs import SampleChoice, choose, write_qa_logs
from services.aggregator.report import write_report
from services.aggregator.settings import OutputRoots
from services.aggregator.wandb_log import log_results
from shared import artifacts
from shared.analysis.metrics import SampleResult, certified_metrics, run_throughput, summarize
from shared.analysis.slices import slice_summaries
from shared.analysis.statistics import Metrics
from shared.artifacts import OutputFolder
from shared.canaries import CanaryRecord
from shared.case_records import SampleCases
from shared.errors import OutputError
from shared.finished_run import open_run
from shared.ledger import CanaryLedger, Ledger
from shared.ledger.ledger import unjudged_verdict
from shared.outlines import ProblemOutline
from shared.run_record import (
    CasesRecord,
    PlannedDataset,
    PublishedResults,
    RunMeta,
    RunPlan,
    RunRecord,
    RunState,
    UnjudgedSample,
)
from shared.schemas import (
    Generation,
    GroundTruth,
    ProblemFacts,
    RecordedCases,
    SampleId,
    Verdict,
    readable_tests,
)
from shared.statuses import FinalStatus, TokenSource, VerdictDetail

_LISTED = 100
_AT_ONCE = 200

FactsByProblem = dict[str, dict[str, ProblemFacts]]


def publish(
    ledger: Ledger,
    roots: OutputRoots | None = None,
    index_of: Callable[[Ledger], Database | None] = lambda _ledger: None,
) -> RunState:
    """Write all artifacts of a run whose samples are all judged, and record it in the ledger.

    The report comes last of the files, so a failure to write it leaves all its sources complete.

    Args:
        ledger: The run's ledger.
        roots: Folders below which the output folder must lie; None for any.
        index_of: Returns an index that has all of the run, so that the report needs no other.

    Returns:
        The new state of the run: complete, incomplete or untrusted.

    Raises:
        OutputError: The output folder cannot be written.
        ValueError: A record in Redis cannot be read.
    """
    meta, plan = ledger.meta(), ledger.plan()
    if meta is None or plan is None:
        raise OutputError(f"run {ledger.run} has no plan in Redis; run its command again")
    if roots is not None:
        roots.check(meta.output)
    folder = OutputFolder(meta.output)
    folder.remove_abandoned()
    samples = _write_samples(folder, ledger, plan)
    facts = _write_problems(folder, ledger, plan, meta)
    cases = _write_cases(folder, ledger, plan, meta.config.output.cases, samples.judged)
    per_second = run_throughput(samples.results.values(), meta.active_seconds)
    metrics: dict[str, Metrics] = {}
    slices: dict[str, dict[str, dict[str, Metrics]]] = {}
    choices: dict[str, SampleChoice] = {}
    for name, results in samples.results.items():
        facts_of = facts.get(name, {})
        many_answers = {
            problem for problem, its_facts in facts_of.items() if its_facts.many_answers
        }
        metrics[name] = {
            **summarize(results, meta.active_seconds, many_answers),
            **certified_metrics(results, meta.tests_of(name)),
            "run_throughput": per_second,
        }
        slices[name] = slice_summaries(results, facts_of)
        statuses = (
            (SampleId(name, result.problem_id, result.sample_index), result.final_status)
            for result in results
        )
        choices[name] = choose(statuses, meta.config.qa_logs.quota(name), meta.seed)
    folder.write_json(artifacts.SUMMARY, metrics)
    folder.write_json(artifacts.SLICES, slices)
    canaries = CanaryLedger(ledger.redis, ledger.run).record()
    record = samples.record(ledger.run, meta, plan.datasets, canaries).without_secrets()
    logs = write_qa_logs(folder, ledger, record, meta, choices)
    record = record.model_copy(update={"qa_logs": logs, "cases": cases})
    folder.write_json(artifacts.RUN, record.document())
    write_report(open_run(folder.url), folder, artifacts.REPORT, database=index_of(ledger))
    if meta.config.wandb.enabled:
        logged = record.model_copy(update={"wandb": log_results(folder, record)})
        folder.write_json(artifacts.RUN, logged.document())
    published = PublishedResults(metrics=metrics, slices=slices)
    ledger.publish(record.state, published, record.canaries)
    return record.state


@dataclass
class PublishedSamples:
    """Totals over the written samples, and their results by data set."""

    results: dict[str, list[SampleResult]] = field(default_factory=dict)
    statuses: Counter[FinalStatus] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    unjudged: list[UnjudgedSample] = field(default_factory=list)
    requests: int = 0
    broken: int = 0
    confirmed: int = 0
    flipped: int = 0
    tokens_from: Counter[TokenSource] = field(default_factory=Counter)

    def add(self, sample: SampleId, generation: Generation | None, verdict: Verdict | None) -> None:
        result = SampleResult.of(
            verdict or unjudged_verdict(sample, "", "no verdict"),
            generation or Generation.missing(sample),
        )
        self.results[sample.dataset].append(result)
        if generation is not None and generation.output_tokens_from is not None:
            self.tokens_from[generation.output_tokens_from] += 1
        if verdict is None:
            return
        self.statuses[verdict.final_status] += 1
        self.requests += verdict.attempts
        self.broken += verdict.detail is VerdictDetail.TEST_ERROR
        self.confirmed += verdict.confirmed
        self.flipped += verdict.flipped
        self.failures.update(failure.kind for failure in verdict.infra_failures)
        if not verdict.judged and len(self.unjudged) < _LISTED:
            unjudged = UnjudgedSample(sample=sample.key, reason=verdict.detail)
            self.unjudged.append(unjudged)

    @property
    def judged(self) -> int:
        """How many were judged: they have a verdict on their completion."""
        return self.statuses.total() - self.statuses[FinalStatus.API_ERROR]

    def record(
        self, run: str, meta: RunMeta, datasets: Sequence[PlannedDataset], canaries: CanaryRecord
    ) -> RunRecord:
        """Build the content of ``run.json``: provenance, totals and completeness of the run."""
        samples = sum(map(len, self.results.values()))
        missing = samples - self.judged
        state = RunState.INCOMPLETE if missing else RunState.COMPLETE
        return RunRecord.of(run, meta, datasets).model_copy(
            update={
                "state": state if canaries.trusted and not self.broken else RunState.UNTRUSTED,
                "test_errors": self.broken,
                "complete": missing == 0,
                "samples_judged": samples - missing,
                "samples_unjudged": missing,
                "unjudged": self.unjudged,
                "statuses": {status: self.statuses[status] for status in FinalStatus},
                "sandbox_requests": self.requests,
                "infra_failures": dict(self.failures.most_common()),
                "timeouts_confirmed": self.confirmed - self.flipped,
                "timeouts_flipped": self.flipped,
                "output_tokens_from": dict(self.tokens_from),
                "canaries": canaries if canaries.sandboxes or canaries.lost else None,
            }
        )


def _write_samples(folder: OutputFolder, ledger: Ledger, plan: RunPlan) -> PublishedSamples:
    """Write completions and verdicts in chunks, so that few completions are in memory at once."""
    published = PublishedSamples({dataset.name: [] for dataset in plan.datasets})
    with (
        folder.replacing(artifacts.VERDICTS) as verdicts,
        folder.replacing(artifacts.GENERATIONS) as generations,  # errors name this one
    ):
        left = iter(plan.each_sample())
        while chunk := list(islice(left, _AT_ONCE)):
            made = {generation.sample: generation for generation in ledger.completions(chunk)}
            judged = {verdict.sample: verdict for verdict in ledger.verdicts(chunk)}
            for sample in chunk:
                if generation := made.get(sample):
                    generations.write(generation.model_dump_json() + "\n")
                if verdict := judged.get(sample):
                    verdicts.write(verdict.model_dump_json() + "\n")
                published.add(sample, generation, verdict)
    return published


def _write_problems(
    folder: OutputFolder, ledger: Ledger, plan: RunPlan, meta: RunMeta
) -> FactsByProblem:
    """Write ``problems.jsonl``; return the facts of problems whose tests can be read.

    A few problems are in memory at a time, because their tests may be large.
    """
    facts: FactsByProblem = {}

    def outlines() -> Iterator[ProblemOutline]:
        for dataset in plan.datasets:
            names = dict.fromkeys(problem_id for problem_id, _ in dataset.owed)
            for problem in ledger.problems([SampleId(dataset.name, name, 0) for name in names]):
                outline = ProblemOutline.of(problem, meta)
                if outline.num_tests is not None:
                    facts.setdefault(outline.dataset, {})[outline.problem_id] = outline.facts
                yield outline

    folder.write_jsonl(artifacts.PROBLEMS, outlines())
    return facts


def _write_cases(
    folder: OutputFolder, ledger: Ledger, plan: RunPlan, recorded: RecordedCases, judged: int
) -> CasesRecord | None:
    """Write ``cases.jsonl.gz`` if the run records cases; otherwise remove an earlier session's.

    One sample's cases and one problem are in memory at a time.
    """
    if recorded == "none":
        folder.remove([artifacts.CASES])
        return None
    lines, samples = 0, Counter[RecordedCases]()

    @lru_cache(maxsize=1)  # a problem's samples follow each other
    def tests_of(dataset: str, problem_id: str) -> GroundTruth | None:
        return readable_tests(ledger.problem(dataset, problem_id))

    with (
        folder.replacing(artifacts.CASES, "wb") as file,
        # The same cases make the same bytes.
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
    ):
        for sample, stored in ledger.cases(plan.samples()):
            cases = SampleCases.unpacked(stored)
            samples[cases.recorded] += 1
            for case in cases.of(sample, tests_of(sample.dataset, sample.problem_id)):
                packed.write(case.model_dump_json().encode() + b"\n")
                lines += 1
    return CasesRecord(
        file=artifacts.CASES,
        cases=lines,
        samples=dict(samples),
        samples_without=judged - samples.total(),
    )
