"""Log of rewards, for reading what the policy is rewarded for: a rotating file of JSON lines.

Completions are chosen by a hash of problem and completion, so a restart changes nothing; a
remembered answer is logged without its text. Of completions in which a guard stopped something, all
are. ``weight`` is the number of completions that a line stands for.
"""

import json
import logging
import socket
import time
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path

from services.reward.models import ScoreItem, ScoreResult
from shared.analysis.hacking import GUARDED, Sign
from shared.redaction import redact
from shared.reference import ProblemReference
from shared.schemas import sha256
from shared.service.logs import get_logger
from shared.text import shorten_middle

log = get_logger(__name__)

_MAX_BYTES, _OLD_FILES = 32 * 1024 * 1024, 3
# Characters of a completion that are hashed, and that are written.
_HASHED, _WRITTEN = 64 * 1024, 64 * 1024
_FIGURES = {
    *("score", "accepted", "pass_ratio", "status", "detail", "judge_seconds"),
    *("cases_passed", "cases_total", "cases_not_run"),
}


class RewardLog:
    """A sample of the results in ``<folder>/rewards-<host>.jsonl``; without a folder, nothing.

    One of ``every`` completions of the ``session`` is chosen. Replicas of one machine need a folder
    each.
    """

    def __init__(self, folder: Path | str | None, session: str, *, every: int) -> None:
        self._session = session
        self._every = every
        self._file: RotatingFileHandler | None = None
        if folder:
            file = Path(folder).expanduser() / f"rewards-{socket.gethostname()}.jsonl"
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
            except OSError:
                log.exception("rewards are not logged")
                return
            self._file = _File(
                file, "a", _MAX_BYTES, _OLD_FILES, "utf-8", delay=True, errors="replace"
            )

    def record(
        self,
        item: ScoreItem,
        problem: ProblemReference,
        result: ScoreResult,
        step: int | None,
        signs: Mapping[Sign, bool],
    ) -> None:
        """Log a result if it is chosen."""
        if self._file is None or not result.judged:
            return
        weight = 1
        if result.detail not in GUARDED:
            digest = sha256(f"{problem.text}\n{item.completion[:_HASHED]}")
            if int(digest[:15], 16) % self._every:
                return
            weight = self._every
        line: dict[str, object] = {
            "at": round(time.time(), 3),
            "session": self._session,
            "step": step,
            "weight": weight,
            "characters": len(item.completion),
            "signs": signs,
            "group": item.group,
            "dataset": problem.dataset,
            "problem_id": problem.problem_id,
            "reference": problem.text,
            **result.model_dump(mode="json", include=_FIGURES),
        }
        if not result.cached:  # secrets are removed before the text is shortened
            line["completion"] = shorten_middle(redact(item.completion), _WRITTEN)
        text = json.dumps(line, ensure_ascii=False)
        self._file.emit(logging.makeLogRecord({"msg": text}))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class _File(RotatingFileHandler):
    """Reports a disk that cannot be written once."""

    _failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        if not self._failed:
            log.error("rewards are not logged", file=self.baseFilename, exc_info=True)
        self._failed = True
