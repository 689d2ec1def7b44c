"""Execution of requests in slots of the admission control, with metrics."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.sandbox.admission import Admission
from services.sandbox.metrics import SandboxMetrics
from services.sandbox.runner import Program, Runner
from services.sandbox.schemas import COMPILED, RunCodeRequest, RunCodeResponse
from shared.harness.wire import CallResult, RunCasesRequest


class Execution:
    """Runs the requests to ``/run_code`` and the cases of a submit.

    Attributes:
        submit_output_limit: Characters that all runs of a submit may print together.
    """

    def __init__(
        self,
        runner: Runner,
        admission: Admission,
        metrics: SandboxMetrics,
        submit_output_limit: int,
    ) -> None:
        self.submit_output_limit = submit_output_limit
        self._runner = runner
        self._admission = admission
        self._metrics = metrics

    async def run(
        self, request: RunCodeRequest, *, admitted: bool = False, program: Program | None = None
    ) -> RunCodeResponse:
        """Run a request in the next free slot; compile first unless ``program`` is given.

        Args:
            request: The program, its input and limits.
            admitted: The run belongs to an admitted submit: it waits even if the queue is full.
            program: The same code as compiled by ``compiled``.

        Raises:
            QueueFullError: The queue is full.
        """
        async with self._slot(request.language, admitted) as slot:
            return await self._runner.run(request, slot, program)

    async def run_cases(self, request: RunCasesRequest) -> CallResult:
        """Run the cases of an answer in the next free slot.

        Raises:
            QueueFullError: The queue is full.
            SlotLostError: The slot does not start.
        """
        async with self._slot(request.language, admitted=False) as slot:
            return await self._runner.run_cases(request, slot)

    @asynccontextmanager
    async def compiled(self, request: RunCodeRequest) -> AsyncIterator[Program | None]:
        """Compile the program once for all runs in the block; None for interpreted languages.

        Raises:
            QueueFullError: The queue is full.
            WorkspaceError: The code cannot be written.
        """
        if request.language not in COMPILED:
            yield None
            return
        async with self._slot(request.language, admitted=False) as slot:
            program = await self._runner.compile(request, slot)
        try:
            yield program
        finally:
            await asyncio.shield(asyncio.to_thread(program.workspace.remove))

    @asynccontextmanager
    async def _slot(self, language: str, admitted: bool) -> AsyncIterator[int]:
        async with self._admission.slot(admitted=admitted) as slot:
            started = time.monotonic()
            try:
                yield slot
            finally:
                seconds = time.monotonic() - started
                self._metrics.busy_seconds.inc(seconds)
                self._metrics.run_seconds.labels(language).observe(seconds)
