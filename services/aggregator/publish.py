"""The artifacts of a run, from the ledger."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from services.aggregator.qa_logs import write_qa_logs
from services.aggregator.wandb_log import log_results
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.ledger import Ledger, RunState
from shared.ledger.ledger import unjudged_verdict
from shared.metrics import SampleResult, summarize
from shared.plan import RunPlan
from shared.result_config import WandbConfig
from shared.schemas import Generation, SampleId
from shared.statuses import FinalStatus

_LISTED = 100


def publish(ledger: Ledger) -> None:
    """Write all artifacts of a run whose samples are all judged, and say so in the ledger.

    Raises:
        OutputError: The output folder cannot be written.
    """
    meta = ledger.meta()
    plan = RunPlan.model_validate(meta["plan"])
    folder = OutputFolder(meta["output"])
    samples = plan.samples()
    folder.write_jsonl(artifacts.GENERATIONS, ledger.completions(samples))
    folder.write_jsonl(artifacts.VERDICTS, ledger.verdicts(samples))
    metrics = summary(ledger, plan, meta.get("active_seconds"))
    folder.write_json(artifacts.SUMMARY, metrics)
    run = run_document(ledger, plan, meta)
    if "config" in meta:
        run["qa_logs"] = write_qa_logs(folder, ledger, plan, meta)
    folder.write_json(artifacts.RUN, run)
    wandb = WandbConfig.model_validate(meta.get("config", {}).get("wandb", {}))
    if wandb.enabled:
        run["wandb"] = log_results(folder, run, metrics, wandb)
        folder.write_json(artifacts.RUN, run)
    ledger.set_meta(state=RunState.PUBLISHED)


def summary(ledger: Ledger, plan: RunPlan, seconds: float | None) -> dict[str, dict[str, Any]]:
    """``{dataset: {metric: value}}``; ``seconds`` is how long the run has been at work."""
    return {
        dataset.name: summarize(_results(ledger, dataset.samples()), seconds)
        for dataset in plan.datasets
    }


def run_document(ledger: Ledger, plan: RunPlan, meta: dict[str, Any]) -> dict[str, Any]:
    """The content of ``run.json``: what was run, with what, and how completely."""
    samples = plan.samples()
    statuses: Counter[FinalStatus] = Counter()
    failures: Counter[str] = Counter()
    unjudged: list[dict[str, str | None]] = []
    sandbox_requests = confirmed = flipped = 0
    for verdict in ledger.verdicts(samples):
        statuses[verdict.final_status] += 1
        sandbox_requests += verdict.attempts
        confirmed += verdict.confirmed
        flipped += verdict.flipped
        failures.update(reason.split(":")[0] for reason in verdict.infra_failures)
        if not verdict.judged and len(unjudged) < _LISTED:
            unjudged.append({"sample": verdict.sample.key, "reason": verdict.detail})
    missing = len(samples) - statuses.total() + statuses[FinalStatus.API_ERROR]
    hidden = {"plan", "state"}
    return {
        **{name: value for name, value in meta.items() if name not in hidden},
        "run": ledger.run,
        "state": "complete" if missing == 0 else "incomplete",
        "complete": missing == 0,
        "samples": len(samples),
        "samples_judged": len(samples) - missing,
        "samples_unjudged": missing,
        "unjudged": unjudged,
        "statuses": {status.value: statuses[status] for status in FinalStatus},
        "sandbox_requests": sandbox_requests,
        "infra_failures": dict(failures.most_common()),
        "timeouts_confirmed": confirmed - flipped,
        "timeouts_flipped": flipped,
        "duplicate_verdicts": meta.get("duplicate_verdicts", 0),
        "jobs_redelivered": meta.get("jobs_redelivered", 0),
        "datasets": [dataset.document() for dataset in plan.datasets],
    }


def _results(ledger: Ledger, samples: Sequence[SampleId]) -> list[SampleResult]:
    generations = {g.sample: g for g in ledger.completions(samples)}
    verdicts = {v.sample: v for v in ledger.verdicts(samples)}
    return [
        SampleResult.of(
            verdicts.get(sample) or unjudged_verdict(sample, "", "no verdict"),
            generations.get(sample) or Generation.missing(sample),
        )
        for sample in samples
    ]
