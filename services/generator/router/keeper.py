"""The life of one replica: started, watched, ended, started again."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from services.generator.router.balancer import Balancer
from services.generator.router.engine import Engine
from services.generator.router.metrics import RouterMetrics
from services.generator.router.replica import ReplicaFactory
from services.generator.router.restarts import Restarts
from services.generator.router.watch import Watch
from services.generator.settings import GeneratorSettings
from shared.errors import PlumblineError, ServiceError
from shared.service.logs import get_logger

log = get_logger(__name__)


class State(StrEnum):
    STARTING = "starting"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """It runs, but gets no new requests until it has given a token again."""
    EJECTED = "ejected"
    RESTARTING = "restarting"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the keepers of all replicas share."""

    settings: GeneratorSettings
    factory: ReplicaFactory
    balancer: Balancer
    watch: Watch
    metrics: RouterMetrics


class Keeper:
    """Keeps replica ``rank`` going; ``on_failed_start`` is called where a start failed."""

    def __init__(
        self, rank: int, around: Surroundings, on_failed_start: Callable[["Keeper"], None]
    ) -> None:
        settings = around.settings
        self.rank = rank
        self.generation = 0
        self.engine: Engine | None = None
        self.error = ""
        self.was_ready = False
        self._around = around
        self._on_failed_start = on_failed_start
        self._state = State.STARTING
        self._restarts = Restarts(
            first_pause=settings.router_restart_backoff,
            per_hour=settings.router_restarts_per_hour,
        )
        self._log = log.bind(replica=rank)
        around.metrics.restarts.labels(str(rank))

    @property
    def state(self) -> State:
        if self._state is State.HEALTHY and self.engine is not None and not self.engine.trusted:
            return State.SUSPECT
        return self._state

    async def run(self) -> None:
        """Return once it is given up; cancelled, call :meth:`stop`."""
        try:
            while True:
                await self._live()
                pause = self._restarts.next_pause()
                if pause is None:
                    self._log.error("given up", generation=self.generation, reason=self.error)
                    return
                self._state = State.RESTARTING
                self._log.info("restarting", in_seconds=pause, reason=self.error)
                await asyncio.sleep(pause)
                self.generation += 1
                self._around.metrics.restarts.labels(str(self.rank)).inc()
        finally:
            self._state = State.GIVEN_UP
            self._withdraw(self.error or "the replica is being stopped")

    async def stop(self) -> None:
        """End the replica, if there is one."""
        engine, limit = self.engine, self._around.settings.router_stop_timeout
        if engine is None:
            return
        try:
            async with asyncio.timeout(limit):
                await engine.replica.stop()
        except TimeoutError:
            self._log.warning("not stopped in time", name=engine.name, seconds=limit)
        except PlumblineError as error:
            self._log.warning("not stopped", name=engine.name, reason=str(error))
        if self.engine is engine:
            self.engine = None

    async def _live(self) -> None:
        self._state = State.STARTING
        began = time.monotonic()
        self._log.info("starting", generation=self.generation)
        try:
            engine = await self._start()
        except PlumblineError as error:
            self.error = str(error)
            self._log.warning(
                "not started",
                generation=self.generation,
                seconds=round(time.monotonic() - began, 1),
                reason=self.error,
            )
            await self.stop()
            self._on_failed_start(self)
            return
        self._serve(engine, time.monotonic() - began)
        self.error = await self._around.watch.until_bad(engine)
        self._state = State.EJECTED
        moved = self._withdraw(f"replica {engine.name} was ejected: {self.error}")
        self._log.warning("ejected", name=engine.name, reason=self.error, moved=moved)
        await self.stop()

    async def _start(self) -> Engine:
        limit = self._around.settings.router_start_timeout
        try:
            async with asyncio.timeout(limit):
                replica = await self._around.factory.start(self.rank, self.generation)
                self.engine = Engine(self.rank, self.generation, replica)
                await self._around.watch.admit(self.engine)
        except TimeoutError:
            raise ServiceError(f"replica {self.rank} was not ready within {limit:g} s") from None
        return self.engine

    def _serve(self, engine: Engine, seconds: float) -> None:
        self._state = State.HEALTHY
        self.was_ready = True
        self._around.balancer.add(engine)
        self._log.info(
            "ready",
            generation=self.generation,
            seconds=round(seconds, 1),
            name=engine.name,
            url=engine.url,
            facts=dict(engine.replica.describe()),
        )

    def _withdraw(self, why: str) -> int:
        """Send no requests there any more, and what is there elsewhere."""
        if self.engine is None:
            return 0
        self._around.balancer.remove(self.engine)
        return self.engine.evict(why)
