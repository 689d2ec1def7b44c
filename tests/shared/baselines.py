"""Parts of a complete baseline run, which passes every check of `plumb accept`."""

from typing import Any

from shared.analysis.evidence import BASELINE_SETS
from shared.config import QUOTAS, load_config
from shared.run_record import DatasetRecord, QaLogRecord, RunRecord, RunState

# Figures of a 7B model: within all ranges.
FIGURES: dict[str, float] = {
    "accepted_at_1": 0.06, "pass_ratio_mean": 0.2, "pass_ratio_p50": 0.1, "pass_ratio_p90": 0.6,
    "exec_success_rate": 0.7, "total_problems": 117, "avg_total_gen_tokens": 400,
    "avg_gen_time": 2.0, "avg_total_judge_time": 0.5, "p95_total_judge_time": 2.0,
    "throughput": 3.0, "cost_per_solved_tokens": 300, "cost_per_solved_judge_time": 0.4,
    "cost_per_solved_time": 2.5, "syntax_error_rate": 0.1, "runtime_error_rate": 0.1,
    "timeout_rate": 0.1, "wrong_answer_rate": 0.64, "empty_output_rate": 0.0,
}  # fmt: skip
SHARES = ("accepted_at_1", "pass_ratio_mean", "exec_success_rate", "syntax_error_rate",
          "timeout_rate")  # fmt: skip


def figures(**changed: Any) -> dict[str, Any]:
    values = {**FIGURES, **changed}
    known = {name: values[name] for name in SHARES if values.get(name) is not None}
    intervals = {f"{name}_ci95": [value - 0.01, value + 0.01] for name, value in known.items()}
    return values | intervals


def record(*overrides: str, **fields: Any) -> RunRecord:
    sets = [
        DatasetRecord(dataset=name, sha256="ab", problems=number, samples=number)
        for name, number in BASELINE_SETS.items()
    ]
    logs = {
        name: QaLogRecord(file=f"qa_logs/{name}.jsonl", wanted=quota, chosen=quota)
        for name, quota in QUOTAS.items()
        if name in BASELINE_SETS
    }
    values: dict[str, Any] = {
        "run": "base-1",
        "model": "Coder-7B",
        "state": RunState.COMPLETE,
        "config": load_config(None, overrides),
        "datasets": sets,
        "qa_logs": logs,
        "data_lock": {"path": "data_manifests/manifest.lock.json"},
        "canaries": {"sandboxes": [sandbox()]},
        "wandb": {"mode": "online", "url": "https://wandb.example/run"},
        **fields,
    }
    return RunRecord.model_validate(values)


def sandbox(**changed: Any) -> dict[str, Any]:
    numbers = {"sent": 8, "right": 8, "wrong": 0, "unjudged": 0, "unable": 0}
    return {"sandbox": "http://s1", **numbers, **changed}
