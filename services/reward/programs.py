"""Programs of tools (``POST /v1/run``), which run in the judges' sandboxes under their permits."""

import asyncio
from http import HTTPStatus

from services.judge.methods.fusion import ProgramRefusedError, run_program
from services.judge.sandbox import SandboxClient
from services.reward.models import RETRY_AFTER, RefusedError
from shared.config import Config
from shared.errors import ServiceError
from shared.programs import Program, ProgramResult

MAX_PENDING = 256
"""Programs that requests may wait for at once."""


class Programs:
    """Runs programs in the sandboxes of a config, whose client is ``sandbox``."""

    def __init__(self, config: Config, sandbox: SandboxClient) -> None:
        self._limits = config.sandbox
        self._sandbox = sandbox
        self._work: set[asyncio.Task[ProgramResult]] = set()
        self.pending = 0

    async def run(self, program: Program, deadline: float) -> ProgramResult:
        """Run a program and wait up to ``deadline`` seconds for its result.

        Raises:
            RefusedError: Too many programs are pending (429), the sandbox does not accept the
                program (422), it could not be run (503), or not before the deadline (504).
        """
        if self.pending >= MAX_PENDING:
            text = f"{MAX_PENDING} programs are pending already"
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=RETRY_AFTER)
        self.pending += 1
        work = asyncio.create_task(run_program(program, self._limits, self._sandbox))
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        try:
            await asyncio.wait({work}, timeout=deadline)
            if not work.done():
                message = f"the program was not run within {deadline:g} s"
                raise RefusedError(HTTPStatus.GATEWAY_TIMEOUT, message, retry_after=RETRY_AFTER)
            return work.result()
        except ProgramRefusedError as error:
            message = f"the sandbox refuses the program: {error}"
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, message) from None
        except ServiceError as error:
            message = f"the program could not be run: {error}"
            status = HTTPStatus.SERVICE_UNAVAILABLE
            raise RefusedError(status, message, retry_after=RETRY_AFTER) from None
        finally:
            work.cancel()  # not awaited: it returns its permit, which an outage of Redis delays
            self.pending -= 1
