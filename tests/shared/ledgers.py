"""Records for filling a ledger."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from shared.ledger import Ledger
from shared.ledger.keys import RunKeys
from shared.run_record import RunMeta, RunPlan
from shared.schemas import Generation, Problem, SampleId, Verdict, sha256
from shared.statuses import FinalStatus

RUN = "run-1"


def enter(
    ledger: Ledger,
    problems: Iterable[Problem] = (),
    plan: RunPlan | None = None,
    **fields: Any,
) -> None:
    """Write what a runner writes when a session begins; ``fields`` are those of ``RunMeta``."""
    ledger.open(RunMeta.model_validate(fields), plan, problems)


def put_meta(ledger: Ledger, **values: Any) -> None:
    """Write fields of the meta data as another version, or a fault, might have."""
    mapping = {name: json.dumps(value) for name, value in values.items()}
    ledger.redis.hset(RunKeys(ledger.run).meta, mapping=mapping)


def problem(problem_id: str = "p1", dataset: str = "d1", **fields: Any) -> Problem:
    values = {
        "dataset": dataset,
        "split": "test",
        "problem_id": problem_id,
        "prompt": f"Solve {problem_id}.",
        "data_source": dataset,
        "ground_truth": json.dumps({"inputs": ["1\n"], "outputs": ["1\n"]}),
        "difficulty": "",
        "sandbox_dataset": "",
        "sandbox_id": "",
        "prompt_sha256": sha256(f"Solve {problem_id}."),
    }
    return Problem.model_validate({**values, **fields})


def generation(
    sample: SampleId | str = "p1", completion: str = "print(1)", **fields: Any
) -> Generation:
    if isinstance(sample, str):
        sample = SampleId("d1", sample)
    values = {
        **asdict(sample),
        "completion": completion,
        "completion_sha256": sha256(completion),
    }
    return Generation.model_validate({**values, **fields})


def verdict(
    generation: Generation, status: FinalStatus = FinalStatus.SUCCESS, **fields: Any
) -> Verdict:
    accepted = status is FinalStatus.SUCCESS
    values = {
        **asdict(generation.sample),
        "completion_sha256": generation.completion_sha256,
        "final_status": status,
        "accepted": accepted,
        "pass_ratio": float(accepted),
        "cases_passed": int(accepted),
        "cases_total": 1,
        "total_judge_time": 0.5,
        "method": "compute_score",
        "checker": "exact",
        "attempts": 1,
    }
    return Verdict.model_validate({**values, **fields})
