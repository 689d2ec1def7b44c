"""The one call that jobs of the judging queue make, parsed strictly from what Redis stores.

Whoever can write to Redis can store any job: RQ's own code would import the function that it names,
run its callbacks, or post to its webhooks. Here nothing that a job says is imported, called or
unpickled. A job is what :meth:`JudgeQueue.put` writes, or it is refused.
"""

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from shared.errors import PlumblineError
from shared.ledger import keys
from shared.ledger.packing import inflate
from shared.ledger.queue import JOB_RETRIES, job_id
from shared.schemas import SampleId

# Bytes of a job's call when it is inflated. Names of problems are all that can be long in it.
_MAX_CALL = 256 * 1024
_MAX_RUN_CHARS = 512
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,9}")
# A run's id is a plain file name and a hash, that of a reward session its prefix and a hash; the id
# of canaries has a prefix.
_RUN = re.compile(rf"({keys.CANARIES})?({keys.REWARDS}[0-9a-f]{{16}}|[^/\x00-\x1f\x7f]+)")


class Flaw(StrEnum):
    """Reason to refuse a job. The first three are found by the script that takes jobs."""

    ID = "id"
    """Its id is not of the form that the ledger makes."""
    TYPE = "type"
    """Its key holds something else than a hash."""
    FIELDS = "fields"
    """It has fields that the ledger never writes, such as dependencies, or very large ones."""
    CALLBACK = "callback"
    """It has a callback, or belongs to a group."""
    SETTINGS = "settings"
    """Its queue, time limits, retries or meta data are not the ledger's."""
    CALL = "call"
    """It calls another function, or with other arguments than run, sample and hash."""
    MISMATCH = "mismatch"
    """Its id is not that of the sample and completion that it names."""


# Values that the ledger's jobs always have; None where it may also be missing.
_CONSTANTS: Mapping[str, tuple[bytes | None, ...]] = {
    "origin": (b"judge",),
    "timeout": (b"-1",),
    "result_ttl": (b"0",),
    "retry_intervals": (b"[0]", None),
}
_NUMBERS = {"failure_ttl": 10**9, "retries_left": JOB_RETRIES, "number_of_retries": 10**6}
_CALLBACKS = (
    *("success_callback_name", "failure_callback_name", "stopped_callback_name"),
    "group_id",
)
# Nobody reads these here, but for the queue's age.
_UNREAD = (
    *("status", "description", "created_at", "enqueued_at", "started_at", "ended_at"),
    *("last_heartbeat", "worker_name", "exc_info"),
)
READ_FIELDS = ("data", "meta", *_CONSTANTS, *_NUMBERS, *_CALLBACKS)
"""The fields of a job that decide whether it is run; ``data`` and ``meta`` are the first."""
FIELDS = (*READ_FIELDS, *_UNREAD)
"""All fields of a job's hash, as written here and by RQ."""


class RefusedJobError(PlumblineError):
    """A job in the queue that judges no sample of the ledger; it is moved aside, never run."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(f"a job was refused: {flaw}")
        self.flaw = flaw


@dataclass(frozen=True, slots=True)
class JobCall:
    """The arguments of a job: run, sample and hash of the completion."""

    run: str
    sample: SampleId
    sha256: str

    @classmethod
    def parse(cls, job: str, values: Sequence[bytes | None]) -> Self:
        """Parse a job's hash.

        Args:
            job: The job's id.
            values: Values of ``READ_FIELDS``; None for a field that the hash lacks.

        Raises:
            RefusedJobError: It is not exactly as :meth:`JudgeQueue.put` writes it.
        """
        fields = dict(zip(READ_FIELDS, values, strict=True))
        if any(fields[name] for name in _CALLBACKS):
            raise RefusedJobError(Flaw.CALLBACK)
        if not _has_our_settings(fields):
            raise RefusedJobError(Flaw.SETTINGS)
        try:
            call = cls(*_arguments(fields["data"] or b""))
            expected = job_id(call.run, call.sample, call.sha256)  # no UTF-8 for lone surrogates
        except (zlib.error, ValueError, TypeError, RecursionError):
            raise RefusedJobError(Flaw.CALL) from None
        if expected != job:
            raise RefusedJobError(Flaw.MISMATCH)
        return call

    @property
    def keys(self) -> keys.RunKeys:
        return keys.RunKeys(self.run)


def _has_our_settings(fields: Mapping[str, bytes | None]) -> bool:
    if any(fields[name] not in allowed for name, allowed in _CONSTANTS.items()):
        return False
    return _is_meta(fields["meta"]) and all(
        _is_number(fields[name], most) for name, most in _NUMBERS.items()
    )


def _is_number(value: bytes | None, most: int) -> bool:
    if value is None:
        return True
    text = value.decode("latin-1")
    return bool(_NUMBER.fullmatch(text)) and int(text) <= most


def _is_meta(value: bytes | None) -> bool:
    """Whether the meta data are none, or the count of lost deliveries."""
    if not value:
        return True
    try:
        meta = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(meta, dict) and meta.keys() == {"losses"} and type(meta["losses"]) is int


def _arguments(data: bytes) -> tuple[str, SampleId, str]:
    """Run, sample and hash in a job's data: JSON of function, instance, arguments, keywords.

    Raises:
        ValueError, TypeError, RecursionError, zlib.error: It is no such call.
    """
    function, instance, arguments, keywords = json.loads(inflate(data, _MAX_CALL))
    if function != keys.JUDGE_FUNCTION or instance is not None or keywords != {}:
        raise ValueError("another function")
    run, key, sha256 = arguments
    if not all(isinstance(value, str) for value in (run, key, sha256)):
        raise TypeError("arguments that are not texts")
    sample = SampleId.parse(key)
    canonical = sample.key == key and sample.sample_index >= 0
    if len(run) > _MAX_RUN_CHARS or not (_RUN.fullmatch(run) and _SHA256.fullmatch(sha256)):
        raise ValueError("not the id of a run, or no hash")
    if not canonical:
        raise ValueError("not a sample's key")
    return run, sample, sha256
