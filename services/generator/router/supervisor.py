"""Supervisor of the replicas: start, health checks, ejection, restart with backoff."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from services.generator.router.balancer import Balancer
from services.generator.router.health import HealthCheck
from services.generator.router.metrics import RouterMetrics
from services.generator.router.replica import (
    Engine,
    EngineStatus,
    NoPlacementError,
    ReplicaFactory,
    ReplicaState,
    ReplicaStatus,
)
from services.generator.settings import GeneratorSettings
from shared.errors import PlumblineError, ServiceError
from shared.service.logs import get_logger

log = get_logger(__name__)
_LONGEST_PAUSE = 120.0


class RestartBudget:
    """Limit of restarts per hour, with exponential backoff between them. Times are seconds.

    Restarts older than an hour count neither for the limit nor for the backoff.
    """

    def __init__(
        self,
        *,
        first_pause: float,
        per_hour: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.first_pause = first_pause
        self._per_hour = per_hour
        self._clock = clock
        self._times: deque[float] = deque()

    def next_pause(self) -> float | None:
        """Spend one restart; returns the pause before it, None if the budget is exhausted."""
        now = self._clock()
        while self._times and self._times[0] <= now - 3600:
            self._times.popleft()
        if len(self._times) >= self._per_hour:
            return None
        pause = min(_LONGEST_PAUSE, self.first_pause * 2.0 ** min(len(self._times), 20))
        self._times.append(now)
        return pause


@dataclass(frozen=True, slots=True)
class SupervisorContext:
    """Dependencies that the supervisors of all replicas share."""

    settings: GeneratorSettings
    factory: ReplicaFactory
    balancer: Balancer
    health: HealthCheck
    metrics: RouterMetrics


class ReplicaSupervisor:
    """Keeps replica ``rank`` running; calls ``on_failed_start`` after each failed start."""

    def __init__(
        self,
        rank: int,
        context: SupervisorContext,
        on_failed_start: Callable[["ReplicaSupervisor"], None],
    ) -> None:
        settings = context.settings
        self.rank = rank
        self.generation = 0
        self.engine: Engine | None = None
        self.error = ""
        self.was_ready = False
        self._unplaced = False
        self._context = context
        self._on_failed_start = on_failed_start
        self._state = ReplicaState.STARTING
        self._restarts = RestartBudget(
            first_pause=settings.router_restart_backoff,
            per_hour=settings.router_restarts_per_hour,
        )
        self._log = log.bind(replica=rank)
        context.metrics.restarts.labels(str(rank))

    @property
    def state(self) -> ReplicaState:
        healthy = self._state is ReplicaState.HEALTHY
        if healthy and self.engine is not None and not self.engine.trusted:
            return ReplicaState.SUSPECT
        return self._state

    @property
    def status(self) -> ReplicaStatus:
        engine = EngineStatus.of(self.engine) if self.engine else None
        return ReplicaStatus(self.rank, self.state, self.generation, self.error, engine)

    async def run(self) -> None:
        """Run until the restart budget is exhausted. After a cancellation, call :meth:`stop`."""
        try:
            while True:
                await self._run_generation()
                # A missing machine may stay away for hours, which is no defect of the replica.
                budget = self._restarts
                pause = budget.first_pause if self._unplaced else budget.next_pause()
                if pause is None:
                    self._log.error("given up", generation=self.generation, reason=self.error)
                    return
                self._state = ReplicaState.RESTARTING
                self._log.info("restarting", in_seconds=pause, reason=self.error)
                await asyncio.sleep(pause)
                self.generation += 1
                self._context.metrics.restarts.labels(str(self.rank)).inc()
        finally:
            self._state = ReplicaState.GIVEN_UP
            self._withdraw(self.error or "the replica is being stopped")

    async def stop(self) -> None:
        """Stop the replica, if it is running."""
        engine, limit = self.engine, self._context.settings.router_stop_timeout
        if engine is None:
            return
        try:
            async with asyncio.timeout(limit):
                await engine.replica.stop()
        except TimeoutError:
            self._log.warning("stop timed out", name=engine.name, seconds=limit)
        except PlumblineError as error:
            self._log.warning("stop failed", name=engine.name, reason=str(error))
        if self.engine is engine:
            self.engine = None

    async def _run_generation(self) -> None:
        """Start the replica and serve requests until it is ejected."""
        self._state = ReplicaState.STARTING
        began = time.monotonic()
        self._log.info("starting", generation=self.generation)
        try:
            engine = await self._start()
        except PlumblineError as error:
            self.error = str(error)
            self._unplaced = isinstance(error, NoPlacementError)
            seconds = round(time.monotonic() - began, 1)
            self._log.warning(
                "start failed", generation=self.generation, seconds=seconds, reason=self.error
            )
            await self.stop()
            self._on_failed_start(self)
            return
        self._unplaced = False
        self._serve(engine, time.monotonic() - began)
        self.error = await _first(
            self._context.health.until_unhealthy(engine), engine.replica.ended()
        )
        self._state = ReplicaState.EJECTED
        moved = self._withdraw(f"replica {engine.name} was ejected: {self.error}")
        self._log.warning("ejected", name=engine.name, reason=self.error, moved=moved)
        await self.stop()

    async def _start(self) -> Engine:
        limit = self._context.settings.router_start_timeout
        try:
            async with asyncio.timeout(limit):
                replica = await self._context.factory.start(self.rank, self.generation)
                self.engine = Engine(self.rank, self.generation, replica)
                await self._context.health.admit(self.engine)
        except TimeoutError:
            raise ServiceError(f"replica {self.rank} was not ready within {limit:g} s") from None
        return self.engine

    def _serve(self, engine: Engine, seconds: float) -> None:
        self._state = ReplicaState.HEALTHY
        self.was_ready = True
        self._context.balancer.add(engine)
        self._log.info(
            "ready",
            generation=self.generation,
            seconds=round(seconds, 1),
            name=engine.name,
            url=engine.url,
            facts=dict(engine.replica.describe()),
            start_seconds=dict(engine.replica.start_seconds),
        )

    def _withdraw(self, reason: str) -> int:
        """Remove the engine from load balancing, and evict its requests; returns their number."""
        if self.engine is None:
            return 0
        self._context.balancer.remove(self.engine)
        return self.engine.evict(reason)


async def _first(*reasons: Coroutine[None, None, str]) -> str:
    """Wait for the first of several results, and cancel the others."""
    tasks = [asyncio.create_task(reason) for reason in reasons]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ReplicaPool:
    """All replicas of the service, started and stopped concurrently.

    Attributes:
        failed: Set when no replica is left; ``error`` is then the reason.
    """

    def __init__(self, n_replicas: int, context: SupervisorContext, failed: asyncio.Event) -> None:
        self._supervisors = [
            ReplicaSupervisor(rank, context, self._start_failed) for rank in range(n_replicas)
        ]
        self.failed = failed
        self.error: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._first_failure = ""

    @property
    def ready(self) -> bool:
        return any(one.state is ReplicaState.HEALTHY for one in self._supervisors)

    @property
    def engines(self) -> Sequence[Engine]:
        """The running engines, by rank."""
        return [one.engine for one in self._supervisors if one.engine]

    def status(self) -> Sequence[ReplicaStatus]:
        return [one.status for one in self._supervisors]

    def start(self) -> None:
        for supervisor in self._supervisors:
            task = asyncio.create_task(supervisor.run())
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def close(self) -> None:
        """Stop all replicas concurrently."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(supervisor.stop() for supervisor in self._supervisors))

    def _start_failed(self, supervisor: ReplicaSupervisor) -> None:
        self._first_failure = self._first_failure or supervisor.error
        if all(one.error and not one.was_ready for one in self._supervisors):
            self._fail(ServiceError(f"no replica could be started: {self._first_failure}"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if error := task.exception():
            log.error("supervision task crashed", exc_info=error)
        if all(one.done() for one in self._tasks):
            reasons = "; ".join(f"{one.rank}: {one.error}" for one in self._supervisors)
            self._fail(error or ServiceError(f"every replica has been given up ({reasons})"))

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self.failed.set()
