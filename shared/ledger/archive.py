"""Archive of a long run: moves finished samples from Redis into segments, without loss.

A segment is on the disk before anything leaves Redis. Then a script takes exactly those samples
out whose completion and verdict are still the ones that were written, and puts their marks. If the
runner is killed in between, Redis still has the samples: the segment is listed nowhere, and the
next session removes it. If Redis went back to an earlier state (a backup, a file that was cut),
such a segment may have samples that Redis lost, and the session records them again before.
"""

import hashlib
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, cast

from redis import Redis

from shared.artifacts import OutputFolder
from shared.errors import OutputError, ServiceError
from shared.ledger import keys
from shared.ledger.ledger import Ledger, list_runs
from shared.ledger.packing import unpack
from shared.ledger.segments import (
    FOLDER,
    FinishedSample,
    Mark,
    is_segment_name,
    read_segment,
    segment_folder,
    segment_name,
    write_segment,
)
from shared.schemas import Generation, SampleId, Verdict
from shared.service.logs import get_logger

log = get_logger(__name__)

# KEYS  lock, hashes, verdicts, completions, cases, deliveries, segments
# ARGV  holder of the lock, its session, number of the segment, its file, then of each sample its
#       name, the hash of its completion, the SHA-1 of its verdict, its mark
# Returns how many samples were moved; -1 if there was another runner since the session began, which
# may have removed the file; -2 if the lock has expired.
_MOVE = """
local lock, hashes, verdicts, completions, cases, deliveries, segments = unpack(KEYS)
local holder = redis.call('GET', lock)
if holder and holder ~= ARGV[1] then return -1 end
if redis.call('HGET', segments, 'session') ~= ARGV[2] then return -1 end
if not holder then return -2 end
redis.call('HSETNX', segments, ARGV[3], ARGV[4])
local moved = 0
for i = 5, #ARGV, 4 do
  local sample, sha, digest, mark = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local verdict = redis.call('HGET', verdicts, sample)
  if verdict and redis.sha1hex(verdict) == digest and redis.call('HGET', hashes, sample) == sha then
    redis.call('HSET', verdicts, sample, mark)
    for _, key in ipairs({ hashes, completions, cases, deliveries }) do
      redis.call('HDEL', key, sample)
    end
    moved = moved + 1
  end
end
redis.call('HINCRBY', segments, 'samples', moved)
return moved
"""
# Fields of the hash of segments: number of the latest one, and the session that writes them.
_LATEST, _SESSION = "latest", "session"
_EXPIRED = -2
_READ_AT_ONCE = 100
# Samples of one call of the script, which Redis runs without interruption.
_MOVED_AT_ONCE = 200


class _Finished(NamedTuple):
    sample: SampleId
    verdict: Verdict
    stored: FinishedSample


class _Placed(NamedTuple):
    """What the script needs of a sample in a segment."""

    sample: str
    completion_sha256: str
    verdict_sha1: str
    mark: str


class Archive:
    """Segments of one run, written by the runner that holds the run's lock.

    Args:
        redis: The ledger's server.
        run: The run's id.
        folder: Its output folder.
        holder: The holder of the run's lock.
    """

    def __init__(self, redis: Redis, run: str, folder: OutputFolder, holder: str) -> None:
        self._redis = redis
        self._run = run
        self._folder = folder
        self._holder = holder
        self._keys = keys.RunKeys(run)
        self._session = uuid.uuid4().hex
        self._begun = False
        self._move = redis.register_script(_MOVE)

    def move(self, samples: Sequence[SampleId]) -> int:
        """Write a segment of those of ``samples`` that are judged, and take them out of Redis.

        A sample stays in Redis if it has no verdict, is ``api_error``, is in a segment already, or
        has records that cannot be read; all stay if the run's lock has expired meanwhile.

        Returns:
            How many samples were moved.

        Raises:
            OutputError: The segment cannot be written; all samples are still in Redis.
            ServiceError: Another runner holds the run's lock.
        """
        if not self._begun:
            self.begin()
        number = int(self._redis.hincrby(self._keys.segments, _LATEST, 1))
        name = segment_name(number)
        path = f"{segment_folder(self._run)}/{name}"
        placed = self._write(path, number, samples)
        if not placed:
            self._folder.remove([path])
            return 0
        chunks = range(0, len(placed), _MOVED_AT_ONCE)
        return sum(self._take_out(number, name, placed[at : at + _MOVED_AT_ONCE]) for at in chunks)

    def begin(self, renew: Callable[[], object] = lambda: None, *, resumed: bool = True) -> None:
        """Begin a session: no earlier one moves samples from here on.

        What killed sessions left is removed: files that hold nothing that is not in Redis. Samples
        that Redis lost are recorded again before; a file that cannot be read is kept.

        Args:
            renew: Renews the run's lock; called while samples are recorded.
            resumed: Whether Redis knew the run before; one that begins anew has lost nothing.
        """
        # Before the files are listed: an earlier session's script comes before this, so that its
        # segment is listed in Redis, or it is refused.
        self._redis.hset(self._keys.segments, _SESSION, self._session)
        self._begun = True
        folder = segment_folder(self._run)
        if not (names := self._folder.names(folder)):
            return
        listed = set(cast(list[bytes], self._redis.hvals(self._keys.segments)))
        left = [
            name
            for name in names
            if name.encode() not in listed
            and not (
                resumed
                and is_segment_name(name)
                and not self._record_lost(f"{folder}/{name}", renew)
            )
        ]
        with suppress(OSError, OutputError):
            self._folder.remove(f"{folder}/{name}" for name in left)

    def _record_lost(self, path: str, renew: Callable[[], object]) -> bool:
        """Record the samples of a segment that Redis has lost; whether it has all of them now."""
        recorded = 0
        try:
            with self._folder.open(path) as file:
                samples = read_segment(file, self._run)
                while chunk := list(islice(samples, _READ_AT_ONCE)):
                    renew()
                    recorded += self._record(chunk)
        except (OSError, EOFError, ValueError, zlib.error, OutputError) as error:
            log.warning("a segment that Redis does not list is kept", path=path, reason=str(error))
            return False
        if recorded:
            log.warning("samples that Redis had lost are recorded", path=path, samples=recorded)
        return True

    def _record(self, samples: Sequence[FinishedSample]) -> int:
        found = [
            (
                Generation.model_validate_json(one.generation),
                Verdict.model_validate_json(one.verdict),
                one.cases,
            )
            for one in samples
        ]
        names = [generation.sample.key for generation, _, _ in found]
        hashes = cast(list[bytes | None], self._redis.hmget(self._keys.hashes, names))
        verdicts = cast(list[bytes | None], self._redis.hmget(self._keys.verdicts, names))
        lost = [
            one
            for one, sha, verdict in zip(found, hashes, verdicts, strict=True)
            if verdict is None and sha in (None, one[0].completion_sha256.encode())
        ]
        if not lost:
            return 0
        Ledger(self._redis, self._run).record_all([(made, verdict) for made, verdict, _ in lost])
        pipe = self._redis.pipeline(transaction=False)
        for made, _, packed in lost:
            if packed is not None:
                pipe.hset(self._keys.cases, made.sample.key, packed)
        pipe.execute()
        return len(lost)

    def delete(self) -> None:
        """Remove the segments of the run, and of others in this folder that Redis does not have."""
        kept = {*list_runs(self._redis)} - {self._run}
        left = [name for name in self._folder.names(FOLDER) if name not in kept]
        self._folder.remove(segment_folder(name) for name in left)

    def _write(self, path: str, number: int, samples: Sequence[SampleId]) -> list[_Placed]:
        placed: list[_Placed] = []
        with self._folder.replacing(path, "wb", durable=True) as file:
            found: list[_Finished] = []

            def records() -> Iterator[FinishedSample]:
                for one in self._finished(samples):
                    found.append(one)
                    yield one.stored

            for offset in write_segment(file, self._run, number, records()):
                placed.append(_placed(found.pop(), number, offset))
        return placed

    def _finished(self, samples: Sequence[SampleId]) -> Iterator[_Finished]:
        """Yield the samples that can be moved, a few in memory at a time."""
        for at in range(0, len(samples), _READ_AT_ONCE):
            chunk = list(dict.fromkeys(samples[at : at + _READ_AT_ONCE]))
            names = [sample.key for sample in chunk]
            pipe = self._redis.pipeline(transaction=True)
            for key in (self._keys.completions, self._keys.verdicts, self._keys.cases):
                pipe.hmget(key, names)
            for sample, *records in zip(chunk, *pipe.execute(), strict=True):
                if (found := _finished(sample, *records)) is not None:
                    yield found

    def _take_out(self, number: int, name: str, samples: Sequence[_Placed]) -> int:
        args: list[str | int] = [self._holder, self._session, number, name]
        args += [part for one in samples for part in one]
        names = self._keys
        moved = self._move(
            keys=[
                *(names.lock, names.hashes, names.verdicts, names.completions, names.cases),
                *(names.deliveries, names.segments),
            ],
            args=args,
        )
        if moved == -1:
            raise ServiceError(f"another runner took over run {self._run}; this one stops")
        return 0 if moved == _EXPIRED else int(moved)


def _placed(found: _Finished, number: int, offset: int) -> _Placed:
    verdict = found.verdict
    mark = Mark(number, offset, verdict.final_status, verdict.completion_sha256)
    digest = hashlib.sha1(found.stored.verdict, usedforsecurity=False).hexdigest()
    return _Placed(found.sample.key, verdict.completion_sha256, digest, str(mark))


def _finished(
    sample: SampleId, packed: bytes | None, stored: bytes | None, cases: bytes | None
) -> _Finished | None:
    if packed is None or stored is None or stored.startswith(b"@"):
        return None
    try:
        completion = unpack(packed)
        generation = Generation.model_validate_json(completion)
        verdict = Verdict.model_validate_json(stored)
    except (ValueError, RecursionError):
        return None  # whoever reads it reports it
    if not verdict.judged or b"\n" in completion or b"\n" in stored:
        return None
    same = verdict.completion_sha256 == generation.completion_sha256
    if not same or verdict.sample != sample or generation.sample != sample:
        return None
    return _Finished(sample, verdict, FinishedSample(completion, stored, cases))
