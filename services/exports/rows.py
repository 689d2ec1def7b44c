"""One flat row per sample: what the table formats have in common."""

from typing import Any

import pyarrow as pa

from services.exports.samples import RunSamples, Sample

_CASE = pa.struct(
    [
        ("case_index", pa.int64()),
        ("status", pa.string()),
        ("input", pa.string()),
        ("expected", pa.string()),
        ("actual", pa.string()),
        ("stderr", pa.string()),
    ]
)
_BREAKDOWN = ("passed", "wrong_answer", "timeout", "runtime_error", "syntax_error")
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("run", pa.string()),
    ("model", pa.string()),
    ("dataset", pa.string()),
    ("problem_id", pa.string()),
    ("sample_index", pa.int64()),
    ("prompt", pa.string()),
    ("completion", pa.string()),
    ("completion_sha256", pa.string()),
    ("final_status", pa.string()),
    ("detail", pa.string()),
    ("accepted", pa.bool_()),
    ("pass_ratio", pa.float64()),
    ("cases_passed", pa.int64()),
    ("cases_total", pa.int64()),
    ("case_codes", pa.list_(pa.int64())),
    ("error_breakdown", pa.struct([(name, pa.int64()) for name in _BREAKDOWN])),
    ("first_failed_case", _CASE),
    ("method", pa.string()),
    ("checker", pa.string()),
    ("finish_reason", pa.string()),
    ("prompt_tokens", pa.int64()),
    ("output_tokens", pa.int64()),
    ("gen_time", pa.float64()),
    ("total_judge_time", pa.float64()),
    ("generation_error", pa.string()),
]
SCHEMA = pa.schema(_COLUMNS)


def row(samples: RunSamples, sample: Sample) -> dict[str, Any]:
    """The values of a sample by column; None where something is not known.

    ``accepted`` and ``pass_ratio`` are None for a sample that nobody could judge.
    """
    generation, verdict = sample.generation, sample.verdict
    values = {**generation.model_dump(mode="json"), **verdict.model_dump(mode="json")}
    judged = verdict.judged
    return {
        **{name: values.get(name) for name in SCHEMA.names},
        "run": samples.run.run.get("run"),
        "model": samples.model,
        "prompt": sample.question and sample.prompt,
        "accepted": verdict.accepted if judged else None,
        "pass_ratio": verdict.pass_ratio if judged else None,
        "generation_error": generation.error,
    }
