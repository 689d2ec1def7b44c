"""Log of rewarded completions, for reading: what is the policy being rewarded for?

Files are stratified: ``<data set>.<status>.<score>.jsonl`` with the score as ``none``, ``some`` or
``full``, so that a flood of one kind never drives out another. A file of ``max_bytes`` becomes
``….jsonl.1``, in place of the one before. Completions are chosen by a hash of problem and
completion, so replicas choose alike and a restart changes nothing; a remembered answer is not
logged again. Of completions in which a guard stopped something, ten times as many are chosen.
"""

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore
from typing import Protocol
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from services.reward.metrics import GUARDED
from services.reward.models import ScoreItem, ScoreResult
from shared.redaction import redact
from shared.reference import ProblemReference
from shared.schemas import sha256
from shared.service.logs import get_logger
from shared.text import shorten_middle

log = get_logger(__name__)

# Lines that may wait for the disk; more are left out.
_MOST_WAITING = 64
# Characters of a completion that are hashed, and that are written.
_HASHED, _WRITTEN = 64 * 1024, 64 * 1024
_LONGEST_STEM = 150
_DENSER = 10


class SampleLog(Protocol):
    """Gets every result on the event loop, so it must not block."""

    def record(self, item: ScoreItem, problem: ProblemReference, result: ScoreResult) -> None: ...

    def close(self) -> None:
        """Write what is waiting; blocks."""
        ...


class NoSampleLog:
    """Keeps nothing."""

    def record(self, item: ScoreItem, problem: ProblemReference, result: ScoreResult) -> None:
        return

    def close(self) -> None:
        return


class SampleRecord(BaseModel):
    """A line of the log.

    ``at`` is a Unix time; secrets are removed from the completion, and a long one is shortened in
    the middle.
    """

    model_config = ConfigDict(frozen=True)

    at: float
    dataset: str
    problem_id: str
    reference: str
    score: float | None
    accepted: bool | None
    pass_ratio: float | None
    status: str
    detail: str | None
    cases_passed: int | None
    cases_total: int | None
    cases_not_run: int | None
    judge_seconds: float | None
    completion: str


class SampleFiles:
    """A sample of the results in files.

    Args:
        folder: Folder of the files; several replicas of one machine may share it.
        every: Of how many completions one is chosen.
        max_bytes: Size at which a file is rotated; on disk are twice as many.
        max_files: Number of strata that are kept; further ones are left out.
    """

    def __init__(
        self,
        folder: Path,
        *,
        every: int,
        max_bytes: int = 4 * 1024 * 1024,
        max_files: int = 200,
    ) -> None:
        self._folder = folder
        self._every = every
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="samples")
        self._room = BoundedSemaphore(_MOST_WAITING)
        self._failed = False

    def record(self, item: ScoreItem, problem: ProblemReference, result: ScoreResult) -> None:
        """Log a result if it is chosen."""
        if not result.judged or result.cached or not self._is_chosen(item, problem, result):
            return
        if self._room.acquire(blocking=False):
            written = self._writer.submit(self._write, item, problem, result, time.time())
            written.add_done_callback(_report)

    def close(self) -> None:
        """Write what is waiting; blocks."""
        self._writer.shutdown()

    def _is_chosen(self, item: ScoreItem, problem: ProblemReference, result: ScoreResult) -> bool:
        every = self._every
        if result.detail in GUARDED:
            every = max(1, every // _DENSER)
        digest = sha256(f"{problem.text}\n{item.completion[:_HASHED]}")
        return int(digest[:15], 16) % every == 0

    def _write(
        self, item: ScoreItem, problem: ProblemReference, result: ScoreResult, at: float
    ) -> None:
        try:
            path = self._folder / _file_name(problem.dataset, result)
            line = _record(item, problem, result, at).model_dump_json() + "\n"
            self._append(path, line.encode())
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.error("samples are not logged", folder=str(self._folder), reason=str(error))
            self._failed = True
        finally:
            self._room.release()

    def _append(self, path: Path, line: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if not path.exists() and len(list(self._folder.glob("*.jsonl"))) >= self._max_files:
            return
        # Opened for each line, so that another replica may rotate it; one write is never torn.
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
            full = os.fstat(file).st_size >= self._max_bytes
        finally:
            os.close(file)
        if full:
            path.replace(path.with_name(f"{path.name}.1"))


def _report(written: Future[None]) -> None:
    if error := written.exception():  # a bug, which nobody else would see
        log.error("a sample is not logged", exc_info=error)


def _record(
    item: ScoreItem, problem: ProblemReference, result: ScoreResult, at: float
) -> SampleRecord:
    return SampleRecord(
        at=round(at, 3),
        dataset=problem.dataset,
        problem_id=problem.problem_id,
        reference=problem.text,
        score=result.score,
        accepted=result.accepted,
        pass_ratio=result.pass_ratio,
        status=result.status.value,
        detail=result.detail,
        cases_passed=result.cases_passed,
        cases_total=result.cases_total,
        cases_not_run=result.cases_not_run,
        judge_seconds=result.judge_seconds,
        # Redacted before it is cut, because half of a secret is not recognized.
        completion=shorten_middle(redact(item.completion), _WRITTEN),
    )


def _file_name(dataset: str, result: ScoreResult) -> str:
    """Name of a stratum's file. Data sets may be named by clients."""
    stem = quote(dataset, safe="")
    if len(stem) > _LONGEST_STEM:
        stem = f"{stem[: _LONGEST_STEM - 17]}-{sha256(dataset)[:16]}"
    score = result.score or 0.0
    share = "full" if score >= 1 else "some" if score > 0 else "none"
    return f"{stem}.{result.status.value}.{share}.jsonl"
