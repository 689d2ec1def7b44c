"""All replicas of the service, started at the same time and kept."""

import asyncio
from collections.abc import Sequence

from services.generator.router.keeper import Keeper, State, Surroundings
from shared.errors import ServiceError
from shared.service.logs import get_logger

log = get_logger(__name__)


class Supervisor:
    """Starts and ends them.

    Attributes:
        keepers: One a replica, by rank.
        failed: Set when nothing is left to serve with; ``error`` then says why.
    """

    def __init__(self, n_replicas: int, around: Surroundings, failed: asyncio.Event) -> None:
        self.keepers: Sequence[Keeper] = [
            Keeper(rank, around, self._start_failed) for rank in range(n_replicas)
        ]
        self.failed = failed
        self.error: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._first_failure = ""

    @property
    def ready(self) -> bool:
        return any(keeper.state is State.HEALTHY for keeper in self.keepers)

    def start(self) -> None:
        for keeper in self.keepers:
            task = asyncio.create_task(keeper.run())
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def close(self) -> None:
        """End all replicas at the same time."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(keeper.stop() for keeper in self.keepers))

    def _start_failed(self, keeper: Keeper) -> None:
        self._first_failure = self._first_failure or keeper.error
        if all(one.error and not one.was_ready for one in self.keepers):
            self._fail(ServiceError(f"no replica could be started: {self._first_failure}"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if error := task.exception():
            log.error("a replica is left alone because of an error in here", exc_info=error)
        if all(one.done() for one in self._tasks):
            reasons = "; ".join(f"{one.rank}: {one.error}" for one in self.keepers)
            self._fail(error or ServiceError(f"every replica has been given up ({reasons})"))

    def _fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self.failed.set()
