"""lm-evaluation-harness export: results, and samples of each task as with ``--log_samples``.

The files are in a folder named after the model. A problem becomes a document and its answers become
responses; its metrics are means over the judged answers (null if there are none). Where
``cases_not_run`` is not 0, ``pass_ratio_mean`` is a lower bound.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from services.exports.samples import (
    RunSamples,
    Sample,
    by_problem,
    folder_name,
    start_time,
    task_names,
)
from shared.analysis.statistics import flat_metrics
from shared.artifacts import OutputFolder
from shared.schemas import sha256

# Field of a verdict by metric of a document; the task's metrics have the same names.
_METRICS = {"accepted_at_1": "accepted", "pass_ratio_mean": "pass_ratio"}
_FILTER = "none"

Document = dict[str, Any]


def write(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write ``results_<time>.json`` and ``samples_<task>_<time>.jsonl``; yields the names."""
    model, when = folder_name(samples.model) or "model", start_time(samples)
    tasks, hashes = task_names(samples.datasets), {}
    for dataset, members in samples.datasets.items():
        name = f"{model}/samples_{tasks[dataset]}_{when}.jsonl"
        digests = []
        with folder.replacing(name) as file:
            for document in _documents(samples, members):
                digests += [document[f"{part}_hash"] for part in ("doc", "prompt", "target")]
                file.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
        hashes[tasks[dataset]] = sha256("".join(digests))
        yield name
    name = f"{model}/results_{when}.json"
    folder.write_json(name, {**_results(samples, tasks), "task_hashes": hashes})
    yield name


def _documents(samples: RunSamples, members: Sequence[Sample]) -> Iterator[Document]:
    for number, answers in enumerate(by_problem(members)):
        first = answers[0]
        doc = {"problem_id": first.generation.problem_id, "prompt": first.prompt}
        messages = json.dumps(samples.messages(first), ensure_ascii=False)
        texts = [answer.generation.completion for answer in answers]
        yield {
            "doc_id": number,
            "doc": doc,
            "target": "",
            "arguments": {"gen_args_0": {"arg_0": messages, "arg_1": _sampling(samples)}},
            "resps": [texts],
            "filtered_resps": texts,
            "filter": _FILTER,
            "metrics": list(_METRICS),
            "doc_hash": sha256(json.dumps(doc, ensure_ascii=False)),
            "prompt_hash": sha256(messages),
            "target_hash": sha256(""),
            "final_status": [answer.verdict.final_status.value for answer in answers],
            "cases_not_run": [answer.verdict.cases_not_run for answer in answers],
            **{metric: _mean(answers, field) for metric, field in _METRICS.items()},
        }


def _mean(answers: Sequence[Sample], field: str) -> float | None:
    values = [float(getattr(a.verdict, field)) for a in answers if a.verdict.judged]
    return sum(values) / len(values) if values else None


def _results(samples: RunSamples, names: Mapping[str, str]) -> Document:
    run = samples.record
    tasks = {task: dataset for dataset, task in names.items()}
    started, finished = run.started_at, run.finished_at
    duration = finished - started if started and finished else None
    return {
        "results": {task: _metrics(samples, dataset) for task, dataset in tasks.items()},
        "group_subtasks": {task: [] for task in tasks},
        "configs": {task: _task(samples, task, dataset) for task, dataset in tasks.items()},
        "versions": dict.fromkeys(tasks, 0),
        "n-shot": dict.fromkeys(tasks, 0),
        "higher_is_better": {task: dict.fromkeys(_METRICS, True) for task in tasks},
        "n-samples": {task: _counts(samples, dataset) for task, dataset in tasks.items()},
        "config": {
            "model": "plumbline",
            "model_args": {"model": samples.model},
            "gen_kwargs": _sampling(samples),
            "random_seed": run.seed,
        },
        "git_hash": run.git_commit,
        "date": started,
        "model_source": "plumbline",
        "model_name": samples.model,
        "model_name_sanitized": folder_name(samples.model),
        "system_instruction": run.system_prompt.text if run.system_prompt else None,
        "start_time": started,
        "end_time": finished,
        "total_evaluation_time_seconds": None if duration is None else str(duration),
    }


def _metrics(samples: RunSamples, dataset: str) -> Document:
    metrics = flat_metrics(samples.run.summary.get(dataset, {}))
    return {"alias": dataset, **{f"{name},{_FILTER}": value for name, value in metrics.items()}}


def _task(samples: RunSamples, task: str, dataset: str) -> Document:
    metrics = [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in _METRICS]
    return {
        "task": task,
        "dataset_name": dataset,
        "output_type": "generate_until",
        "metric_list": metrics,
        "repeats": samples.record.config.actor_rollout_ref.rollout.n,
        "generation_kwargs": _sampling(samples),
        "num_fewshot": 0,
    }


def _counts(samples: RunSamples, dataset: str) -> dict[str, int]:
    problems = list(by_problem(samples.datasets[dataset]))
    judged = sum(any(answer.verdict.judged for answer in answers) for answers in problems)
    return {"original": len(problems), "effective": judged}


def _sampling(samples: RunSamples) -> Document:
    rollout = samples.record.config.actor_rollout_ref.rollout
    return {
        "do_sample": rollout.temperature > 0,
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "max_gen_toks": rollout.response_length,
        "until": samples.record.config.generation.stop,
    }
