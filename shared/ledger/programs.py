"""Programs that a service instance has run by the judges: requests, answers, redelivery.

A program is a job in the judges' queue. Its request expires with the deadline of the one who asked;
its answer comes in a stream of the asking instance, exactly once, and is deleted when it was read.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Self
from uuid import uuid4

from redis.asyncio import Redis as AsyncRedis
from redis.typing import EncodableT
from rq.job import Job
from rq.queue import Queue
from rq.utils import utcformat

from shared.ledger import keys
from shared.ledger.ledger import entries
from shared.ledger.packing import inflate, pack
from shared.ledger.pipelined import Command, PipelinedRedis, Script
from shared.ledger.queue import ENQUEUE, job_call, job_id, text
from shared.programs import ProgramAnswer, ProgramRequest
from shared.schemas import SampleId, sha256

# Seconds that answers stay which nobody reads, because the instance that asked is gone.
ANSWERS_KEPT = 600
# Bytes of a request and of an answer as JSON, where a character may take six. A config is small.
MAX_REQUEST = 16 * 1024 * 1024
MAX_ANSWER = 2 * 1024 * 1024
_DATASET = "tool"
_READ_AT_ONCE = 100
_QUEUE = f"{Queue.redis_queue_namespace_prefix}{keys.JUDGE_QUEUE}"
_SCRIPT = Script(ENQUEUE + resources.files(__package__).joinpath("programs.lua").read_text())


@dataclass(frozen=True, slots=True)
class SentProgram:
    """A program on its way.

    Attributes:
        id: Its unique id.
        sample: Its name as a sample, which jobs have.
        sha256: Hash of the request as JSON.
        packed: The request as stored.
        job: The id of its job; the same on every delivery.
    """

    id: str
    sample: str
    sha256: str
    packed: bytes
    job: str

    @classmethod
    def of(cls, run: str, request: ProgramRequest) -> Self:
        """Pack a program of the instance ``run``, which takes a while for a large one."""
        document, program = request.model_dump_json(), uuid4().hex
        sample, digest = SampleId(_DATASET, program, 0), sha256(document)
        job = job_id(run, sample, digest)
        return cls(program, sample.key, digest, pack(document), job)


@dataclass(frozen=True, slots=True)
class Answers:
    """Entries of the stream of answers.

    Attributes:
        last: Id of the last entry, after which to read on.
        entries: Ids of all of them.
        found: Answers by the programs' ids; None where one cannot be read.
    """

    last: str
    entries: Sequence[str]
    found: Mapping[str, ProgramAnswer | None]


class ProgramLedger:
    """Programs of one service instance, for one event loop.

    Args:
        redis: Connection for waiting.
        commands: Connection for all other commands.
    """

    def __init__(self, redis: AsyncRedis, commands: PipelinedRedis) -> None:
        self.run = f"{keys.PROGRAMS}{uuid4().hex[:16]}"
        self._redis = redis
        self._commands = commands
        self._keys = keys.ProgramKeys(self.run)

    async def send(self, program: SentProgram, seconds: float, *, losses: int = 0) -> None:
        """Queue a program (idempotent).

        Args:
            program: The program.
            seconds: Time after which nobody waits for it.
            losses: How often its job was lost; it then runs alone in its judge.

        Raises:
            RedisError: Redis is unavailable.
        """
        call = job_call(self.run, program.sample, program.sha256)
        meta = json.dumps({"losses": losses}) if losses else ""
        date = utcformat(datetime.now(UTC))
        expires = max(1, round(seconds * 1000))
        await self._script(
            "send", program, program.sample, call, date, meta, program.packed, expires
        )

    async def cancel(self, program: SentProgram) -> None:
        """Forget a program that nobody waits for; a judge that has it will answer to nobody."""
        await self._script("cancel", program)

    async def answers(self, after: str, block: float) -> Answers:
        """Wait up to ``block`` seconds for answers behind an entry; the first one is behind 0.

        Raises:
            RedisError: Redis is unavailable.
        """
        read: Any = await self._redis.xread(
            {self._keys.results: after}, count=_READ_AT_ONCE, block=max(1, round(block * 1000))
        )
        names: list[str] = []
        found: dict[str, ProgramAnswer | None] = {}
        for entry, fields in entries(read):
            names.append(entry)
            found[text(fields.get(b"program", b""))] = _answer(fields.get(b"answer", b""))
        return Answers(names[-1] if names else after, names, found)

    async def forget(self, answers: Answers) -> None:
        """Delete answers that were read."""
        if answers.entries:
            await self._commands.send([("XDEL", self._keys.results, *answers.entries)])

    async def close(self) -> None:
        """Delete the answers that nobody will read."""
        await self._commands.send([("DEL", self._keys.results)])

    async def missing(self, programs: Sequence[SentProgram]) -> set[str]:
        """Ids of the programs whose job neither waits in the queue nor is in a judge's hands.

        A job is in neither place for an instant while a judge takes it, and after its answer.
        """
        if not programs:
            return set()
        asked: list[Command] = [
            ("MGET", *(keys.lease(program.job) for program in programs)),
            ("LRANGE", _QUEUE, 0, -1),
        ]
        leases, waiting = await self._commands.send(asked)
        queued = set(map(text, waiting))
        return {
            program.id
            for program, lease in zip(programs, leases, strict=True)
            if lease is None and program.job not in queued
        }

    async def _script(self, command: str, program: SentProgram, *args: EncodableT) -> None:
        request = self._keys.request(program.id)
        script_keys = [_QUEUE, Queue.redis_queues_keys, request, Job.key_for(program.job)]
        await self._commands.run(_SCRIPT, script_keys, [command, program.job, *args])


def _answer(packed: bytes) -> ProgramAnswer | None:
    try:
        return ProgramAnswer.model_validate_json(inflate(packed, MAX_ANSWER))
    except (ValueError, zlib.error):
        return None
