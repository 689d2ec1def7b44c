"""QA logs: a stratified sample of prompts, answers and verdicts of each data set."""

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from pydantic import BaseModel

from shared.artifacts import QA_LOGS, OutputFolder
from shared.ledger import Ledger
from shared.outlines import ProblemOutline
from shared.run_record import Provenance, QaLogRecord, RunRecord
from shared.schemas import (
    ChatMessage,
    FailedCase,
    GroundTruth,
    SampleId,
    SandboxFusionTests,
    sha256,
)
from shared.statuses import NOT_RUN, FinalStatus
from shared.text import shorten_middle

_BREAKDOWN = ("passed", "wrong_answer", "timeout", "runtime_error", "syntax_error", NOT_RUN)
# Tests of a record, and characters of each of their texts; the middle is cut.
_MOST_TESTS, _MOST_CHARS = 3, 2000
_LOG = re.compile(r".+_\d+\.jsonl")

_OF_VERDICT = (
    *("problem_id", "dataset", "sample_index", "pass_ratio", "cases_not_run", "accepted"),
    *("final_status", "detail", "total_judge_time"),
)
# Of the kinds of tests the fields that a record has.
_OF_TESTS = {
    *("inputs", "outputs", "test", "entry_point", "test_list", "test_setup_code"),
    *("program_tests", "language", "sandbox_dataset", "sandbox_id"),
}

Counts = dict[FinalStatus, int]


# Stratified sampling by status: pure functions with the same result on every machine.


@dataclass(frozen=True)
class SampleChoice:
    """Result of the sampling.

    Attributes:
        samples: The chosen samples, by status and then by id.
        wanted: The quota.
        chosen: Number of chosen samples by status.
        filled: Number of them that replace samples of a status that had too few.
    """

    samples: tuple[SampleId, ...]
    wanted: Counts
    chosen: Counts
    filled: Counts


def choose(
    statuses: Iterable[tuple[SampleId, FinalStatus]], quota: Mapping[FinalStatus, int], seed: int
) -> SampleChoice:
    """Choose samples at random, as many of each status as the quota asks for.

    When a status has too few, the others (also those without a quota, but never ``api_error``) fill
    the gap in proportion to their remaining samples, by the largest remainder method.

    Args:
        statuses: All samples of one data set, each once.
        quota: Number of samples wanted of each status.
        seed: Samples of a status are taken in the order of the SHA-256 of seed and key.
    """
    # api_error is excluded: infrastructure failures say nothing about a model.
    strata: dict[FinalStatus, list[SampleId]] = {
        status: [] for status in FinalStatus if status is not FinalStatus.API_ERROR
    }
    for sample, status in statuses:
        if status in strata:
            strata[status].append(sample)
    met = {status: min(quota.get(status, 0), len(strata[status])) for status in strata}
    spare = {status: len(strata[status]) - met[status] for status in strata}
    filled = apportion(sum(quota.values()) - sum(met.values()), spare)
    chosen = {status: met[status] + filled[status] for status in strata}

    def order(sample: SampleId) -> str:
        return sha256(f"{seed}\n{sample.key}")

    samples = [
        sample
        for status, members in strata.items()
        for sample in sorted(heapq.nsmallest(chosen[status], members, key=order))
    ]
    return SampleChoice(tuple(samples), dict(quota), _nonzero(chosen), _nonzero(filled))


def apportion(number: int, available: Mapping[FinalStatus, int]) -> Counts:
    """Divide a number in proportion to the available counts, by the largest remainder method.

    No share exceeds the available count. Ties are broken by the order of the statuses.
    """
    total = sum(available.values())
    if number >= total:
        return dict(available)
    shares = {status: divmod(number * count, total) for status, count in available.items()}
    counts = {status: whole for status, (whole, _) in shares.items()}
    by_remainder = sorted(shares, key=lambda status: -shares[status][1])
    for status in by_remainder[: number - sum(counts.values())]:
        counts[status] += 1
    return counts


def _nonzero(counts: Counts) -> Counts:
    return {status: count for status, count in counts.items() if count}


# Records: lines of a QA log.


class QaRecord(BaseModel, frozen=True):
    """A sample with prompt, answer and verdict: one line of a QA log.

    Texts of tests and of ``execution_output``'s ``first_failed_case`` are shortened; a problem's
    tests may have many MB. ``metadata`` has model, sampling parameters and ``timestamp``, the start
    of the run (ISO 8601 in UTC).
    """

    problem_id: str
    dataset: str
    sample_index: int
    prompt: str
    messages: tuple[ChatMessage, ...] | None = None
    response: str
    ground_truth: dict[str, str | int | list[str]]
    pass_ratio: float
    cases_not_run: int = 0
    accepted: bool
    final_status: FinalStatus
    detail: str | None
    output_tokens: int | None
    total_judge_time: float
    error_breakdown: dict[str, int]
    execution_output: dict[str, FailedCase | None]
    metadata: dict[str, str | int | float | None]


def write_qa_logs(
    folder: OutputFolder,
    ledger: Ledger,
    record: RunRecord,
    provenance: Provenance,
    choices: Mapping[str, SampleChoice],
) -> dict[str, QaLogRecord]:
    """Write ``qa_logs/<dataset>_<n>.jsonl`` for each data set; n is the total of its quota.

    Logs of earlier quotas are removed, samples without completion or verdict are left out.

    Returns:
        The record of each data set's log, for ``run.json``.

    Raises:
        OutputError: The folder cannot be written.
    """
    written: dict[str, QaLogRecord] = {}
    for dataset, choice in choices.items():
        name = f"{QA_LOGS}/{file_name(dataset, sum(choice.wanted.values()))}"
        folder.write_jsonl(name, _records(ledger, record, provenance, choice.samples))
        written[dataset] = QaLogRecord(
            file=name, wanted=choice.wanted, chosen=choice.chosen, filled=choice.filled
        )
    current = {log.file for log in written.values()}
    logs = (f"{QA_LOGS}/{name}" for name in folder.names(QA_LOGS) if _LOG.fullmatch(name))
    folder.remove(name for name in [*logs] if name not in current)
    return written


def _records(
    ledger: Ledger, record: RunRecord, provenance: Provenance, samples: Iterable[SampleId]
) -> Iterator[QaRecord]:
    rollout = record.config.actor_rollout_ref.rollout
    started = record.started_at and datetime.fromtimestamp(record.started_at, UTC)
    metadata = {
        "model": record.model or record.config.actor_rollout_ref.model.path,
        "temperature": rollout.temperature,
        "max_new_tokens": rollout.response_length,
        "timestamp": started.isoformat(timespec="seconds") if started else None,
    }
    for sample in samples:
        generation, verdict = ledger.completion(sample), ledger.verdict(sample)
        problem = ledger.problem(sample.dataset, sample.problem_id)
        if generation is None or verdict is None or problem is None:
            continue
        case = verdict.first_failed_case
        yield QaRecord(
            **{name: getattr(verdict, name) for name in _OF_VERDICT},
            prompt=problem.prompt,
            messages=ProblemOutline.of(problem, provenance).messages,
            response=generation.completion,
            ground_truth=_shortened_tests(problem.tests),
            output_tokens=generation.output_tokens,
            error_breakdown={name: verdict.error_breakdown.get(name, 0) for name in _BREAKDOWN},
            execution_output={"first_failed_case": case and shorten_case(case, _MOST_CHARS)},
            metadata=metadata,
        )


def _shortened_tests(tests: GroundTruth) -> dict[str, str | int | list[str]]:
    shown: dict[str, str | int | list[str]] = {
        name: shorten_middle(value, _MOST_CHARS)
        if isinstance(value, str)
        else [shorten_middle(text, _MOST_CHARS) for text in value[:_MOST_TESTS]]
        for name, value in tests.model_dump(include=_OF_TESTS).items()
    }
    return (
        shown if isinstance(tests, SandboxFusionTests) else shown | {"num_test_cases": tests.cases}
    )


def shorten_case(case: FailedCase, limit: int) -> FailedCase:
    """Return a copy of a case with each text shortened to ``limit`` characters."""
    texts = {name: getattr(case, name) for name in ("input", "expected", "actual", "stderr")}
    return case.model_copy(
        update={name: text and shorten_middle(text, limit) for name, text in texts.items()}
    )


def file_name(dataset: str, total: int) -> str:
    """Return the name of a QA log; a long one is cut and hashed to fit in 255 bytes."""
    stem = quote(dataset, safe="")
    stem = stem if len(stem) <= 200 else f"{stem[:160]}-{sha256(dataset)[:16]}"
    return f"{stem}_{total}.jsonl"
