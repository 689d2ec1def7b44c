"""QA logs: a stratified sample of prompts, answers and verdicts of each data set."""

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from shared.artifacts import QA_LOGS, OutputFolder
from shared.config import QaLogsConfig
from shared.outlines import ProblemOutline
from shared.run_record import QaLogRecord, RunRecord
from shared.schemas import (
    ChatMessage,
    FailedCase,
    Generation,
    GroundTruth,
    HumanEvalTests,
    Problem,
    ProgramTests,
    SampleId,
    SandboxFusionTests,
    StdioTests,
    Verdict,
    sha256,
)
from shared.statuses import NOT_RUN, FinalStatus
from shared.text import shorten_middle

_BREAKDOWN = ("passed", "wrong_answer", "timeout", "runtime_error", "syntax_error", NOT_RUN)
# Tests of a record, and characters of each of their texts; the middle is cut.
_MOST_TESTS, _MOST_CHARS = 3, 2000

_OF_VERDICT = (
    *("problem_id", "dataset", "sample_index", "pass_ratio", "cases_not_run", "accepted"),
    *("final_status", "detail", "total_judge_time"),
)

Counts = dict[FinalStatus, int]
ShortenedTests = dict[str, str | int | list[str]]


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


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class ExecutionOutput(_Record):
    """Output of the judged program; the texts of ``first_failed_case`` are shortened."""

    first_failed_case: FailedCase | None


class RunMetadata(_Record):
    """Model and sampling parameters; ``timestamp`` is the start of the run, ISO 8601 in UTC."""

    model: str
    temperature: float | None
    max_new_tokens: int | None
    timestamp: str | None


class QaRecord(_Record):
    """A sample with prompt, answer and verdict: one line of a QA log."""

    problem_id: str
    dataset: str
    sample_index: int
    prompt: str
    messages: tuple[ChatMessage, ...] | None = None
    response: str
    ground_truth: ShortenedTests
    pass_ratio: float
    cases_not_run: int = 0
    accepted: bool
    final_status: FinalStatus
    detail: str | None
    output_tokens: int | None
    total_judge_time: float
    error_breakdown: dict[str, int]
    execution_output: ExecutionOutput
    metadata: RunMetadata


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked, and the tests, shortened: a problem's tests may have many MB."""

    prompt: str
    messages: tuple[ChatMessage, ...] | None
    ground_truth: ShortenedTests

    @classmethod
    def of(cls, problem: Problem, outline: ProblemOutline) -> Self:
        tests = _shortened_tests(problem.tests)
        return cls(problem.prompt, outline.messages, tests)


def qa_record(
    question: Question,
    generation: Generation,
    verdict: Verdict,
    metadata: RunMetadata,
) -> QaRecord:
    """Build the record of one sample; outputs are shortened."""
    case = verdict.first_failed_case
    return QaRecord(
        **{name: getattr(verdict, name) for name in _OF_VERDICT},
        prompt=question.prompt,
        messages=question.messages,
        response=generation.completion,
        ground_truth=question.ground_truth,
        output_tokens=generation.output_tokens,
        error_breakdown={name: verdict.error_breakdown.get(name, 0) for name in _BREAKDOWN},
        execution_output=ExecutionOutput(
            first_failed_case=case and shorten_case(case, _MOST_CHARS)
        ),
        metadata=metadata,
    )


def run_metadata(meta: RunRecord) -> RunMetadata:
    """Return the model and the sampling parameters of a run."""
    rollout = meta.config.actor_rollout_ref.rollout
    return RunMetadata(
        model=meta.model or meta.config.actor_rollout_ref.model.path,
        temperature=rollout.temperature,
        max_new_tokens=rollout.response_length,
        timestamp=None if meta.started_at is None else _iso(meta.started_at),
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _shortened_tests(tests: GroundTruth) -> ShortenedTests:
    def texts(values: list[str]) -> list[str]:
        return [shorten_middle(value, _MOST_CHARS) for value in values[:_MOST_TESTS]]

    if isinstance(tests, StdioTests):
        shown = {"inputs": texts(tests.inputs), "outputs": texts(tests.outputs)}
        return {**shown, "num_test_cases": tests.cases}
    if isinstance(tests, HumanEvalTests):
        test = shorten_middle(tests.test, _MOST_CHARS)
        return {"test": test, "entry_point": tests.entry_point, "num_test_cases": tests.cases}
    if isinstance(tests, ProgramTests):
        test = shorten_middle(tests.program_tests, _MOST_CHARS)
        return {"test": test, "language": tests.language, "num_test_cases": tests.cases}
    if isinstance(tests, SandboxFusionTests):
        return {"sandbox_dataset": tests.sandbox_dataset, "sandbox_id": tests.sandbox_id}
    setup = shorten_middle(tests.test_setup_code, _MOST_CHARS)
    return {
        "test_list": texts(tests.test_list),
        "test_setup_code": setup,
        "num_test_cases": tests.cases,
    }


def shorten_case(case: FailedCase, limit: int) -> FailedCase:
    """Return a copy of a case with each text shortened to ``limit`` characters."""
    texts = {name: getattr(case, name) for name in ("input", "expected", "actual", "stderr")}
    return case.model_copy(
        update={name: text and shorten_middle(text, limit) for name, text in texts.items()}
    )


# Files.


class QaLogs:
    """The QA logs of a run: chosen from the samples' statuses.

    Args:
        config: Quotas.
        seed: Seed of the choice.
        statuses: The samples of each data set with their status.
    """

    def __init__(
        self,
        config: QaLogsConfig,
        seed: int,
        statuses: Mapping[str, Iterable[tuple[SampleId, FinalStatus]]],
    ) -> None:
        self._config = config
        self._choices = {
            dataset: choose(samples, config.quota(dataset).by_status, seed)
            for dataset, samples in statuses.items()
        }
        self._problems = {(sample.dataset, sample.problem_id) for sample in self.samples}
        self._questions: dict[tuple[str, str], Question] = {}

    @property
    def samples(self) -> list[SampleId]:
        """The chosen samples."""
        return [sample for one in self._choices.values() for sample in one.samples]

    def add_problem(self, problem: Problem, outline: ProblemOutline) -> None:
        """Keep what the logs need of a problem, if one of its samples was chosen."""
        name = (problem.dataset, problem.problem_id)
        if name in self._problems:
            self._questions[name] = Question.of(problem, outline)

    def write(
        self, folder: OutputFolder, run: RunRecord, answers: Iterable[tuple[Verdict, Generation]]
    ) -> dict[str, QaLogRecord]:
        """Write ``qa_logs/<dataset>_<n>.jsonl`` for each data set; n is the total of its quota.

        Logs of earlier quotas are removed.

        Args:
            folder: The run's output folder.
            run: Its record.
            answers: Verdict and completion of the chosen samples; one without is left out.

        Returns:
            The record of each data set's log, for ``run.json``.

        Raises:
            OutputError: The folder cannot be written.
        """
        metadata = run_metadata(run)
        records = {
            verdict.sample: qa_record(question, generation, verdict, metadata)
            for verdict, generation in answers
            if (question := self._questions.get((verdict.dataset, verdict.problem_id)))
        }
        written: dict[str, QaLogRecord] = {}
        for dataset, choice in self._choices.items():
            name = f"{QA_LOGS}/{file_name(dataset, self._config.quota(dataset).total)}"
            lines = (records[sample] for sample in choice.samples if sample in records)
            folder.write_jsonl(name, lines)
            written[dataset] = QaLogRecord(
                file=name, wanted=choice.wanted, chosen=choice.chosen, filled=choice.filled
            )
        _remove_others(folder, {name: log.file for name, log in written.items()})
        return written


def file_name(dataset: str, total: int) -> str:
    """Return the name of a QA log; a long one is cut and hashed to fit in 255 bytes."""
    return f"{_stem(dataset)}_{total}.jsonl"


def _stem(dataset: str) -> str:
    stem = quote(dataset, safe="")
    return stem if len(stem) <= 200 else f"{stem[:160]}-{sha256(dataset)[:16]}"


def _remove_others(folder: OutputFolder, files: Mapping[str, str]) -> None:
    """Remove the logs of these data sets for earlier quotas; keep all other files."""
    for dataset, current in files.items():
        pattern = re.compile(re.escape(_stem(dataset)) + r"_\d+\.jsonl")
        old = [name for name in folder.names(QA_LOGS) if pattern.fullmatch(name)]
        folder.remove(f"{QA_LOGS}/{name}" for name in old if f"{QA_LOGS}/{name}" != current)
