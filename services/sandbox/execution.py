"""Runs in admitted slots, measured."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.sandbox import languages
from services.sandbox.admission import Admission
from services.sandbox.metrics import Metrics
from services.sandbox.runner import Program, Runner
from services.sandbox.schemas import RunCodeRequest, RunCodeResponse


class Execution:
    """The one way to the runner, for requests to ``/run_code`` and for the runs of a submit.

    Attributes:
        submit_output_limit: Characters that all runs of a submit may print together.
    """

    def __init__(
        self, runner: Runner, admission: Admission, metrics: Metrics, submit_output_limit: int
    ) -> None:
        self.submit_output_limit = submit_output_limit
        self._runner = runner
        self._admission = admission
        self._metrics = metrics

    async def run(
        self, request: RunCodeRequest, *, admitted: bool = False, program: Program | None = None
    ) -> RunCodeResponse:
        """Run in the next free slot; with a ``program`` already compiled, only that.

        Args:
            request: What to run.
            admitted: It belongs to something under way, and waits even behind a full queue.
            program: What ``compiled`` made of the same code.

        Raises:
            QueueFullError: There is no place in the queue.
        """
        async with self._slot(request, admitted) as slot:
            return await self._runner.run(request, slot, program)

    @asynccontextmanager
    async def compiled(self, request: RunCodeRequest) -> AsyncIterator[Program | None]:
        """The program, compiled once for all runs in the block; None if its language needs none.

        Raises:
            QueueFullError: There is no place in the queue.
            WorkspaceError: The code cannot be written.
        """
        if request.language not in languages.COMPILED:
            yield None
            return
        async with self._slot(request, admitted=False) as slot:
            program = await self._runner.compile(request, slot)
        try:
            yield program
        finally:
            await asyncio.shield(asyncio.to_thread(program.workspace.remove))

    @asynccontextmanager
    async def _slot(self, request: RunCodeRequest, admitted: bool) -> AsyncIterator[int]:
        async with self._admission.slot(admitted=admitted) as slot:
            started = time.monotonic()
            try:
                yield slot
            finally:
                seconds = time.monotonic() - started
                self._metrics.busy_seconds.inc(seconds)
                self._metrics.run_seconds.labels(request.language).observe(seconds)
