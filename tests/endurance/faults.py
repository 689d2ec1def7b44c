"""Faults at work: signals to the processes of a stack, and connections that break."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil
from redis import Redis
from redis.exceptions import RedisError

from tests.endurance.connections import CuttableProxy
from tests.endurance.processes import processes
from tests.endurance.schedule import Fault, Kind

_SIGNALS = {
    Kind.KILL: signal.SIGKILL,
    Kind.TERMINATE: signal.SIGTERM,
    Kind.FREEZE: signal.SIGSTOP,
    Kind.GONE: signal.SIGKILL,
}
# Seconds between two kills of a process that is gone for a while: it is restarted in between, as
# often as a supervisor bears.
_AGAIN = 2.0


class Injector:
    """Injects faults as their time comes.

    Args:
        command: Process id of the stack's command.
        spared: Process id of the judge that is never killed.
        proxy: The way to the service.
        redis: Client of the stack's Redis.
        note: Receives each fault with what became of it.
    """

    def __init__(
        self,
        command: int,
        spared: int,
        proxy: CuttableProxy,
        redis: Redis,
        note: Callable[[str], None],
    ) -> None:
        self.made: Counter[tuple[Kind, str]] = Counter()
        self._command, self._spared = command, spared
        self._proxy, self._redis, self._note = proxy, redis, note

    async def run(self, faults: Sequence[Fault], began: float) -> None:
        """Inject all faults; ``began`` is the start on the monotonic clock.

        At the end nothing is frozen.
        """
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(began + fault.at - time.monotonic())
                group.create_task(self._inject(fault))

    async def _inject(self, fault: Fault) -> None:
        if fault.kind is Kind.CUT:
            number = await self._cut(fault.victim)
            self._made(fault, f"{number} connections")
            return
        victims = processes(fault.victim, self._command)
        if fault.kind is not Kind.FREEZE:
            victims = [one for one in victims if one.pid != self._spared]
        if not victims:
            self._note(f"{fault}: not there")
            return
        victim = victims[fault.pick % len(victims)]
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(_SIGNALS[fault.kind])
            self._made(fault, str(victim.pid))
        if fault.kind is Kind.FREEZE:
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                with suppress(psutil.NoSuchProcess):
                    victim.send_signal(signal.SIGCONT)
        elif fault.kind is Kind.GONE:
            await self._keep_away(fault)

    async def _keep_away(self, fault: Fault) -> None:
        ends = time.monotonic() + fault.seconds
        while time.monotonic() < ends:
            await asyncio.sleep(_AGAIN)
            for victim in processes(fault.victim, self._command):
                with suppress(psutil.NoSuchProcess):
                    victim.kill()

    async def _cut(self, victim: str) -> int:
        if victim == "reward":
            return self._proxy.cut()
        with suppress(RedisError):
            return int(
                await asyncio.to_thread(self._redis.client_kill_filter, _type="normal", skipme=True)
            )
        return 0

    def _made(self, fault: Fault, what: str) -> None:
        self.made[fault.kind, fault.victim] += 1
        self._note(f"{fault}: {what}")
