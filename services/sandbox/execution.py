"""Execution of requests in slots of the admission control, with metrics."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.sandbox.admission import Admission
from services.sandbox.metrics import SandboxMetrics
from services.sandbox.runner import Runner
from services.sandbox.schemas import RunCodeRequest, RunCodeResponse
from shared.harness.wire import CallResult, RunCasesRequest


class Execution:
    """Runs each request in the next free slot."""

    def __init__(self, runner: Runner, admission: Admission, metrics: SandboxMetrics) -> None:
        self.runner = runner
        self._admission = admission
        self._metrics = metrics

    async def run(self, request: RunCodeRequest) -> RunCodeResponse:
        """Compile and run a program.

        Raises:
            QueueFullError: The queue is full.
        """
        async with self.slot(request.language) as slot:
            return await self.runner.run(request, slot)

    async def run_cases(self, request: RunCasesRequest) -> CallResult:
        """Run the cases of an answer.

        Raises:
            QueueFullError: The queue is full.
            SlotLostError: The slot does not start.
        """
        async with self.slot(request.language) as slot:
            return await self.runner.run_cases(request, slot)

    @asynccontextmanager
    async def slot(self, language: str) -> AsyncIterator[int]:
        """Hold a slot for the duration of the block; yields its number.

        Raises:
            QueueFullError: The queue is full.
        """
        async with self._admission.slot() as slot:
            started = time.monotonic()
            try:
                yield slot
            finally:
                seconds = time.monotonic() - started
                self._metrics.busy_seconds.inc(seconds)
                self._metrics.run_seconds.labels(language).observe(seconds)
