"""A sample with its question, its answer and what became of it: a line of a QA log."""

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from shared.result_config import QaLogsConfig
from shared.run_record import RunMeta
from shared.schemas import (
    FailedCase,
    Generation,
    GroundTruth,
    HumanEvalTests,
    Problem,
    StdioTests,
    Verdict,
)
from shared.statuses import FinalStatus

_BREAKDOWN = ("passed", "wrong_answer", "timeout", "runtime_error", "syntax_error")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Execution(_Record):
    first_failed_case: dict[str, Any] | None


class RunFacts(_Record):
    """``timestamp``: when the run began, ISO 8601 in UTC."""

    model: str
    temperature: float | None
    max_new_tokens: int | None
    timestamp: str | None


class QaRecord(_Record):
    """The plan's fields, and beside them what tells samples of one problem apart."""

    problem_id: str
    dataset: str
    sample_index: int
    prompt: str
    response: str
    ground_truth: dict[str, Any]
    pass_ratio: float
    accepted: bool
    final_status: FinalStatus
    detail: str | None
    output_tokens: int | None
    total_judge_time: float
    error_breakdown: dict[str, int]
    execution_output: Execution
    metadata: RunFacts


def qa_record(
    problem: Problem,
    generation: Generation,
    verdict: Verdict,
    facts: RunFacts,
    limits: QaLogsConfig,
) -> QaRecord:
    """Put together what is known of one sample, tests and outputs shortened."""
    return QaRecord(
        problem_id=problem.problem_id,
        dataset=problem.dataset,
        sample_index=verdict.sample_index,
        prompt=problem.prompt,
        response=generation.completion,
        ground_truth=_shortened_tests(problem.tests, limits),
        pass_ratio=verdict.pass_ratio,
        accepted=verdict.accepted,
        final_status=verdict.final_status,
        detail=verdict.detail,
        output_tokens=generation.output_tokens,
        total_judge_time=verdict.total_judge_time,
        error_breakdown={name: verdict.error_breakdown.get(name, 0) for name in _BREAKDOWN},
        execution_output=Execution(
            first_failed_case=_failed_case(verdict.first_failed_case, limits.max_chars)
        ),
        metadata=facts,
    )


def run_facts(meta: RunMeta) -> RunFacts:
    """Model and sampling of a run, from its meta data."""
    rollout = meta.config.actor_rollout_ref.rollout
    return RunFacts(
        model=meta.model or meta.config.actor_rollout_ref.model.path,
        temperature=rollout.temperature,
        max_new_tokens=rollout.response_length,
        timestamp=None if meta.started_at is None else _iso(meta.started_at),
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def shortened(text: str, limit: int) -> str:
    """Take the middle out of a text of more than ``limit`` characters, and say how much it was."""
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit} characters left out …\n"
    head = (limit + 1) // 2
    return text[:head] + mark + text[len(text) - (limit - head) :]


def _shortened_tests(tests: GroundTruth, limits: QaLogsConfig) -> dict[str, Any]:
    def texts(values: list[str]) -> list[str]:
        return [shortened(value, limits.max_chars) for value in values[: limits.max_tests]]

    if isinstance(tests, StdioTests):
        shown = {"inputs": texts(tests.inputs), "outputs": texts(tests.outputs)}
        return {**shown, "num_test_cases": tests.cases}
    if isinstance(tests, HumanEvalTests):
        test = shortened(tests.test, limits.max_chars)
        return {"test": test, "entry_point": tests.entry_point, "num_test_cases": tests.cases}
    setup = shortened(tests.test_setup_code, limits.max_chars)
    shown_tests = {"test_list": texts(tests.test_list), "test_setup_code": setup}
    return {**shown_tests, "num_test_cases": tests.cases}


def _failed_case(case: FailedCase | None, limit: int) -> dict[str, Any] | None:
    if case is None:
        return None
    texts = {"input": case.input, "expected": case.expected, "actual": case.actual}
    texts["stderr"] = case.stderr
    return {
        "case_index": case.case_index,
        "status": case.status.value,
        **{name: text and shortened(text, limit) for name, text in texts.items()},
    }
