"""Programs of tools (``POST /v1/run``), which the judges run under the permits of verdicts.

Each request waits for the answer of its own program. One task reads the answers of all of them,
another delivers programs again whose judge was lost. Times are seconds.
"""

import asyncio
import time
from dataclasses import dataclass, field
from http import HTTPStatus

from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError

from services.reward.errors import RETRY_AFTER, RefusedError, too_many
from services.reward.models import MAX_DEADLINE
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.programs import ProgramLedger, SentProgram
from shared.programs import Program, ProgramAnswer, ProgramRequest, ProgramResult
from shared.service.logs import get_logger
from shared.statuses import FailureKind

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProgramTimings:
    """Timings of the two tasks.

    Attributes:
        block: Longest wait for answers at once.
        check: Time between two searches for lost programs; also the limit of each clean-up.
        young: Age up to which a program is not searched for.
        pause: Time until the next attempt while Redis is unavailable.
    """

    block: float = 5.0
    check: float = 2.0
    young: float = 4.0
    pause: float = 0.5


@dataclass(slots=True)
class _Pending:
    """A program that a request waits for, until ``deadline`` on the monotonic clock."""

    program: SentProgram
    deadline: float
    answer: "asyncio.Future[ProgramAnswer]"
    sent_at: float = field(default_factory=time.monotonic)
    losses: int = 0


class Programs:
    """Has programs run by the judges.

    Args:
        redis: Connection for waiting.
        commands: Connection for all other commands.
        config: The config for judges, as JSON.
        max_pending: Programs that requests may wait for at once.
        max_deadline: Seconds that a request may wait, whatever it asks for.
        max_deliveries: How often a program is delivered again whose judge was lost.
    """

    def __init__(
        self,
        redis: AsyncRedis,
        commands: PipelinedRedis,
        config: str,
        *,
        max_pending: int,
        max_deliveries: int,
        max_deadline: float = MAX_DEADLINE,
        timings: ProgramTimings | None = None,
    ) -> None:
        self._ledger = ProgramLedger(redis, commands)
        self._config = config
        self._max_pending = max_pending
        self._max_deliveries = max_deliveries
        self._max_deadline = max_deadline
        self._timings = timings or ProgramTimings()
        self._pending: dict[str, _Pending] = {}
        self._running = 0
        self._suspects: set[str] = set()
        self._asked = asyncio.Event()

    @property
    def pending(self) -> int:
        """Number of programs that requests wait for."""
        return self._running

    def start(self) -> list[asyncio.Task[None]]:
        """Start the two tasks; the caller ends them before :meth:`close`."""
        return [asyncio.create_task(self._receive()), asyncio.create_task(self._deliver_lost())]

    async def close(self) -> None:
        """Delete the answers that nobody will read."""
        try:
            async with asyncio.timeout(self._timings.check):
                await self._ledger.close()
        except (RedisError, TimeoutError) as error:  # what is left expires
            log.warning("answers to programs not deleted", reason=repr(error))

    async def run(self, program: Program, deadline: float) -> ProgramResult:
        """Run a program and wait up to ``deadline`` seconds for its result.

        Raises:
            RefusedError: Too many programs are pending (429), the sandbox does not accept the
                program (422), it could not be run (503), or not before the deadline (504).
        """
        if self._running >= self._max_pending:
            raise too_many(f"{self._max_pending} programs are pending already")
        self._running += 1
        deadline = min(deadline, self._max_deadline)
        try:
            request = ProgramRequest(program=program, config=self._config)
            sent = await asyncio.to_thread(SentProgram.of, self._ledger.run, request)
            return _result(await self._answer_to(sent, deadline))
        finally:
            self._running -= 1

    async def _answer_to(self, sent: SentProgram, deadline: float) -> ProgramAnswer:
        """Send a program and wait for the answer; it is cancelled if the wait ends before."""
        waiting: asyncio.Future[ProgramAnswer] = asyncio.get_running_loop().create_future()
        self._pending[sent.id] = _Pending(sent, time.monotonic() + deadline, waiting)
        self._asked.set()
        try:
            async with asyncio.timeout(deadline):
                await self._ledger.send(sent, deadline)
                return await waiting
        except TimeoutError:
            message = f"the program was not run within {deadline:g} s"
            raise RefusedError(
                HTTPStatus.GATEWAY_TIMEOUT, message, retry_after=RETRY_AFTER
            ) from None
        except RedisError as error:
            raise _unavailable(f"Redis is unavailable ({type(error).__name__})") from None
        finally:
            del self._pending[sent.id]
            if not waiting.done() or waiting.cancelled():
                await self._cancel(sent)

    async def _cancel(self, program: SentProgram) -> None:
        try:
            async with asyncio.timeout(self._timings.check):  # a client may wait for its answer
                await self._ledger.cancel(program)
        except (RedisError, TimeoutError) as error:  # it is cancelled late, or expires
            log.warning("a program was not cancelled", reason=repr(error))

    async def _receive(self) -> None:
        after = "0"
        while True:
            if not self._pending:
                self._asked.clear()
                await self._asked.wait()
            try:
                answers = await self._ledger.answers(after, self._timings.block)
                after = answers.last
                for program, answer in answers.found.items():
                    self._answer(program, answer)
                await self._ledger.forget(answers)
            except RedisError as error:
                log.warning("no answers to programs, retrying", reason=str(error))
                await asyncio.sleep(self._timings.pause)

    def _answer(self, program: str, answer: ProgramAnswer | None) -> None:
        pending = self._pending.get(program)
        if pending is None or pending.answer.done():
            return  # its client is gone, or a second judge had it
        unreadable = FailureKind.UNUSABLE_ANSWER.value
        pending.answer.set_result(answer or ProgramAnswer(failure=unreadable))

    async def _deliver_lost(self) -> None:
        while True:
            await asyncio.sleep(self._timings.check)
            try:
                await self._deliver_missing()
            except RedisError as error:
                log.warning("lost programs not searched for, retrying", reason=str(error))

    async def _deliver_missing(self) -> None:
        """Deliver programs again whose job was missing in two searches in a row."""
        now = time.monotonic()
        young = now - self._timings.young
        old = [one.program for one in self._pending.values() if one.sent_at < young]
        missing = await self._ledger.missing(old)
        for program in missing & self._suspects:
            if (pending := self._pending.get(program)) and not pending.answer.done():
                await self._deliver_again(pending)
        self._suspects = missing - self._suspects

    async def _deliver_again(self, pending: _Pending) -> None:
        pending.losses += 1
        if pending.losses > self._max_deliveries:
            lost = FailureKind.JUDGE_WORKER_LOST.value
            pending.answer.set_result(ProgramAnswer(failure=lost))
            return
        log.warning("a program's job was lost, sent again", losses=pending.losses)
        left = max(1.0, pending.deadline - time.monotonic())
        await self._ledger.send(pending.program, left, losses=pending.losses)


def _result(answer: ProgramAnswer) -> ProgramResult:
    if answer.result is not None:
        return answer.result
    reason = answer.failure or "no reason given"
    if answer.refused:
        message = f"the sandbox refuses the program: {reason}"
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, message)
    raise _unavailable(f"the program could not be run: {reason}")


def _unavailable(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, message, retry_after=RETRY_AFTER)
