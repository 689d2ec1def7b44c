"""Supervisor of the replicas: start, health checks, ejection, restart with backoff."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence

from services.generator.router.balancer import Balancer
from services.generator.router.health import HealthCheck
from services.generator.router.metrics import RouterMetrics
from services.generator.router.replica import (
    NoPlacementError,
    Replica,
    ReplicaFactory,
    ReplicaState,
)
from services.generator.settings import GeneratorSettings
from shared.errors import PlumblineError, ServiceError
from shared.service.logs import get_logger
from shared.service.processes import cancel_and_wait

log = get_logger(__name__)
RESTARTS_PER_HOUR = 10
STOP_SECONDS = 60.0
"""Seconds for a replica to stop."""
# Seconds before the first restart; the pause doubles up to the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 120.0


class RestartBudget:
    """Limit of restarts per hour, with exponential backoff; older restarts count for neither."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: list[float] = []

    def next_pause(self) -> float | None:
        """Spend one restart; returns the seconds before it, None if the budget is exhausted."""
        now = self._clock()
        self._times = [moment for moment in self._times if moment > now - 3600]
        if len(self._times) >= RESTARTS_PER_HOUR:
            return None
        self._times.append(now)
        return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (len(self._times) - 1))


class ReplicaSupervisor:
    """Keeps replica ``rank`` of a pool running."""

    def __init__(self, rank: int, pool: "ReplicaPool") -> None:
        self.rank = rank
        self.generation = 0
        self.replica: Replica | None = None
        self.error = ""
        self.was_ready = False
        self._unplaced = False
        self._pool = pool
        self._state = ReplicaState.STARTING
        self._restarts = RestartBudget()
        self._log = log.bind(replica=rank)
        metrics, name = pool.metrics, str(rank)
        self._restarted = metrics.restarts.labels(name)
        metrics.healthy.labels(name).set_function(lambda: self.state is ReplicaState.HEALTHY)
        metrics.in_flight.labels(name).set_function(lambda: self.in_flight)

    @property
    def state(self) -> ReplicaState:
        suspect = self.replica is not None and self.replica.suspect
        healthy = self._state is ReplicaState.HEALTHY
        return ReplicaState.SUSPECT if healthy and suspect else self._state

    @property
    def in_flight(self) -> int:
        return self.replica.in_flight if self.replica else 0

    def status(self) -> dict[str, object]:
        """The state for ``/readyz``."""
        replica = self.replica
        return {
            "replica": self.rank,
            "state": self.state,
            "generation": self.generation,
            "error": self.error,
            "name": replica.name if replica else "",
            "url": replica.url if replica else "",
            "in_flight": self.in_flight,
            "facts": dict(replica.describe()) if replica else {},
        }

    async def run(self) -> None:
        """Run until the restart budget is exhausted. After a cancellation, call :meth:`stop`."""
        try:
            while True:
                await self._run_generation()
                # A missing machine may stay away for hours, which is no defect of the replica.
                pause = _FIRST_PAUSE if self._unplaced else self._restarts.next_pause()
                if pause is None:
                    self._log.error("given up", generation=self.generation, reason=self.error)
                    return
                self._state = ReplicaState.RESTARTING
                self._log.info("restarting", in_seconds=pause, reason=self.error)
                await asyncio.sleep(pause)
                self.generation += 1
                self._restarted.inc()
        finally:
            self._state = ReplicaState.GIVEN_UP
            self._withdraw()

    async def stop(self) -> None:
        """Stop the replica, if it is running."""
        replica = self.replica
        if replica is None:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await replica.stop()
        except TimeoutError:
            self._log.warning("stop timed out", name=replica.name, seconds=STOP_SECONDS)
        except PlumblineError as error:
            self._log.warning("stop failed", name=replica.name, reason=str(error))
        if self.replica is replica:
            self.replica = None

    async def _run_generation(self) -> None:
        """Start the replica and serve requests until it is ejected."""
        self._state = ReplicaState.STARTING
        began = time.monotonic()
        self._log.info("starting", generation=self.generation)
        try:
            replica = await self._start()
        except PlumblineError as error:
            self.error = str(error)
            self._unplaced = isinstance(error, NoPlacementError)
            seconds = round(time.monotonic() - began, 1)
            self._log.warning(
                "start failed", generation=self.generation, seconds=seconds, reason=self.error
            )
            await self.stop()
            self._pool.start_failed(self)
            return
        self._unplaced = False
        self._state = ReplicaState.HEALTHY
        self.was_ready = True
        self._pool.balancer.add(replica)
        self._log.info(
            "ready",
            generation=self.generation,
            seconds=round(time.monotonic() - began, 1),
            name=replica.name,
            url=replica.url,
            facts=dict(replica.describe()),
        )
        self.error = await _first(self._pool.health.until_unhealthy(replica), replica.ended())
        self._state = ReplicaState.EJECTED
        evicted = self._withdraw()
        self._log.warning("ejected", name=replica.name, reason=self.error, evicted=evicted)
        await self.stop()

    async def _start(self) -> Replica:
        limit = self._pool.start_timeout
        try:
            async with asyncio.timeout(limit):
                self.replica = await self._pool.factory.start(self.rank, self.generation)
                self.replica.rank = self.rank
                await self._pool.health.admit(self.replica)
        except TimeoutError:
            raise ServiceError(f"replica {self.rank} was not ready within {limit:g} s") from None
        return self.replica

    def _withdraw(self) -> int:
        """Remove the engine from load balancing, and evict its requests; returns their number."""
        if self.replica is None:
            return 0
        self._pool.balancer.remove(self.replica)
        return self.replica.evict()


async def _first(*reasons: Coroutine[None, None, str]) -> str:
    """Wait for the first of several results, and cancel the others."""
    tasks = [asyncio.create_task(reason) for reason in reasons]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        await cancel_and_wait(*tasks)


class ReplicaPool:
    """All replicas of the service, started and stopped concurrently.

    The ``balancer`` assigns requests to healthy ones. ``failed`` is set when no replica is left;
    ``error`` is then the reason.
    """

    def __init__(
        self, settings: GeneratorSettings, factory: ReplicaFactory, n_replicas: int
    ) -> None:
        self.start_timeout = settings.router_start_timeout
        self.factory = factory
        self.balancer = Balancer(
            slots=settings.router_max_in_flight, queue_size=settings.router_queue_size
        )
        self.health = HealthCheck(settings)
        self.metrics = RouterMetrics()
        self.metrics.queued.set_function(lambda: self.balancer.queued)
        self.failed = asyncio.Event()
        self.error: BaseException | None = None
        self._supervisors = [ReplicaSupervisor(rank, self) for rank in range(n_replicas)]
        self._tasks: list[asyncio.Task[None]] = []
        self._first_failure = ""

    @property
    def ready(self) -> bool:
        return any(s.state is ReplicaState.HEALTHY for s in self._supervisors)

    @property
    def replicas(self) -> Sequence[Replica]:
        """The running engines, by rank."""
        return [s.replica for s in self._supervisors if s.replica]

    def status(self) -> Sequence[dict[str, object]]:
        return [s.status() for s in self._supervisors]

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

    def start_failed(self, supervisor: ReplicaSupervisor) -> None:
        """Note a failed start; the service ends if no replica has ever been ready."""
        self._first_failure = self._first_failure or supervisor.error
        if all(s.error and not s.was_ready for s in self._supervisors):
            self._fail(ServiceError(f"no replica could be started: {self._first_failure}"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if error := task.exception():
            log.error("supervision task crashed", exc_info=error)
        if all(t.done() for t in self._tasks):
            reasons = "; ".join(f"{s.rank}: {s.error}" for s in self._supervisors)
            self._fail(error or ServiceError(f"every replica has been given up ({reasons})"))

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self.failed.set()
