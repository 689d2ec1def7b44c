"""Inspect export: evaluation logs (``inspect view``, ``inspect_ai.log``) as JSON, version 2.

Each data set becomes one log and task. A problem becomes a sample and its answers become epochs. A
sample without a verdict has an error and no score.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from services.exports.samples import RunSamples, Sample
from shared.analysis.statistics import flat_metrics
from shared.artifacts import OutputFolder
from shared.text import not_run_note

_SCORER = "plumbline"
# Inspect shows the first metric in its list of logs.
_HEADLINE = "accepted_at_1"
# Inspect's names of finish reasons.
_STOP_REASONS = {"length": "max_tokens", "stop": "stop"}

Document = dict[str, Any]


def write(samples: RunSamples, folder: OutputFolder) -> Iterator[str]:
    """Write ``<time>_<data set>_<id>.json`` for each data set; yields the names."""
    start = datetime.fromtimestamp(samples.record.started_at or 0.0, UTC)
    for dataset, members in samples.datasets.items():
        log = _log(samples, dataset, members)
        # "_" separates the parts of the name, which Inspect parses.
        part = _task_name(dataset).replace("_", "-")
        name = f"{start:%Y-%m-%dT%H-%M-%S}_{part}_{log['eval']['task_id']}.json"
        with folder.replacing(name) as file:
            json.dump(log, file, ensure_ascii=False, allow_nan=False)
        yield name


def _log(samples: RunSamples, dataset: str, members: Sequence[Sample]) -> Document:
    unjudged = sum(not member.verdict.judged for member in members)
    message = f"{unjudged} of {len(members)} samples have no verdict"
    # Readers of the header reject a null "error", and stop reading at "samples", which comes last.
    return {
        "version": 2,
        "status": "error" if unjudged else "success",
        **({"error": _error(message)} if unjudged else {}),
        "eval": _eval(samples, dataset, members),
        "plan": {"name": "plan", "steps": [{"solver": "generate", "params": {}}]},
        "results": _results(samples, dataset, members),
        "stats": {
            "started_at": _time(samples.record.started_at) or "",
            "completed_at": _time(samples.record.finished_at) or "",
            "model_usage": {samples.model: _usage(members)},
        },
        "samples": [_sample(samples, member) for member in members],
    }


def _eval(samples: RunSamples, dataset: str, members: Sequence[Sample]) -> Document:
    run = samples.record
    rollout = run.config.actor_rollout_ref.rollout
    hashes = {record.dataset: record.sha256 for record in run.datasets}
    ids = list(dict.fromkeys(member.generation.problem_id for member in members))
    return {
        "eval_id": _id(run.run, dataset, "eval"),
        "run_id": _id(run.run),
        "created": _time(run.started_at) or _time(0),
        "task": _task_name(dataset),
        "task_id": _id(run.run, dataset),
        "task_version": 0,
        "dataset": {"name": dataset, "samples": len(ids), "sample_ids": ids, "shuffled": False},
        "model": samples.model,
        "model_generate_config": {
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
            "max_tokens": rollout.response_length,
        },
        "config": {"epochs": max(m.generation.sample_index for m in members) + 1},
        "packages": {"plumbline": (run.versions or {}).get("plumbline", "")},
        "scorers": [{"name": _SCORER}],
        "metadata": {
            "run": run.run,
            "fingerprint": run.fingerprint or None,
            "git_commit": run.git_commit,
            "dataset_sha256": hashes.get(dataset),
        },
    }


def _results(samples: RunSamples, dataset: str, members: Sequence[Sample]) -> Document:
    flat = flat_metrics(samples.run.summary.get(dataset, {}))
    metrics = sorted(flat.items(), key=lambda metric: metric[0] != _HEADLINE)
    judged = sum(member.verdict.judged for member in members)
    score = {
        "name": _SCORER,
        "scorer": _SCORER,
        "scored_samples": judged,
        "unscored_samples": len(members) - judged,
        "metrics": {name: {"name": name, "value": value} for name, value in metrics},
    }
    return {"total_samples": len(members), "completed_samples": judged, "scores": [score]}


def _sample(samples: RunSamples, member: Sample) -> Document:
    generation, verdict = member.generation, member.verdict
    question = [message.model_dump() for message in member.problem.messages or ()] or [
        {"role": "user", "content": member.problem.prompt}
    ]
    answer = {"role": "assistant", "content": generation.completion, "source": "generate"}
    reason = _STOP_REASONS.get(generation.finish_reason or "", "unknown")
    usage = _usage([member])
    return {
        "id": generation.problem_id,
        "epoch": generation.sample_index + 1,
        "input": question,
        "target": "",
        "messages": [*question, answer],
        "output": {
            "model": samples.model,
            "choices": [{"message": answer, "stop_reason": reason}],
            "completion": generation.completion,
            "usage": usage,
            "time": generation.gen_time,
            "error": generation.error,
        },
        "scores": {_SCORER: _score(member)} if verdict.judged else None,
        "error": None if verdict.judged else _error(verdict.detail or "not judged"),
        "model_usage": {samples.model: usage},
        "total_time": (generation.gen_time or 0) + verdict.total_judge_time,
        "metadata": {"completion_sha256": generation.completion_sha256},
        "uuid": _id(verdict.sample.key, samples.record.run),
    }


def _score(member: Sample) -> Document:
    """Build a score: ``C`` (correct) or ``I`` (incorrect), with the verdict as metadata."""
    verdict = member.verdict
    detail = f" ({verdict.detail})" if verdict.detail else ""
    passed = f"{verdict.cases_passed} of {verdict.cases_total} cases passed"
    passed += not_run_note(verdict.cases_not_run)
    keys = {"final_status", "pass_ratio", "cases_not_run", "case_codes", "error_breakdown"}
    keys |= {"method", "checker", "shared_process"}
    return {
        "value": "C" if verdict.accepted else "I",
        "explanation": f"{verdict.final_status}{detail}: {passed}",
        "metadata": verdict.model_dump(mode="json", include={*keys, "first_failed_case"}),
    }


def _usage(members: Sequence[Sample]) -> Document:
    prompt = sum(member.generation.prompt_tokens or 0 for member in members)
    output = sum(member.generation.output_tokens or 0 for member in members)
    return {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output}


def _task_name(dataset: str) -> str:
    return re.sub(r"\W", "_", dataset, flags=re.ASCII)


def _error(message: str) -> Document:
    return {"message": message, "traceback": "", "traceback_ansi": ""}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _id(*parts: object) -> str:
    """Return a deterministic id of 22 hex digits, the length of Inspect's own ids."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:22]
