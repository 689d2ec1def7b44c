"""When an engine is asked for a sign of life, and when it is given up."""

import asyncio
import time

from services.generator.router.engine import Engine
from services.generator.router.prober import ProbeFailure, Prober
from shared.errors import ServiceError
from shared.service.logs import get_logger

log = get_logger(__name__)
_LONGEST_PAUSE = 1.0


class Watch:
    """Judges engines by the tokens they give.

    Args:
        prober: Asks for a token.
        interval: Seconds without one after which a probe is sent.
        failures: Probes in a row that fail before an engine is given up. After a dropped
            connection one is enough, if it did not merely take too long.
    """

    def __init__(self, prober: Prober, *, interval: float, failures: int) -> None:
        self._prober = prober
        self._interval = interval
        self._failures = failures

    async def admit(self, engine: Engine) -> None:
        """Wait for an engine's first token.

        Raises:
            ServiceError: It gives none.
        """
        await self._prober.find_model(engine)
        failures = 0
        while failure := await self._prober.probe(engine):
            failures += 1
            if failures >= self._failures:
                raise ServiceError(f"{engine.name} gives no token: {failure.message}")
            await self._pause()

    async def until_bad(self, engine: Engine) -> str:
        """Return why the engine has to go, once it has to."""
        while True:
            await self._quiet(engine)
            engine.probe_wanted.clear()
            failure = await self._prober.probe(engine)
            if failure is None:
                continue
            if reason := self._judge(engine, failure):
                return reason
            await self._pause()

    def _judge(self, engine: Engine, failure: ProbeFailure) -> str:
        log.warning("probe failed", replica=engine.rank, reason=failure.message)
        if failure.ours:
            return ""
        engine.failed_probes += 1
        if engine.dropped and not failure.slow:
            return f"a connection was dropped, and then: {failure.message}"
        return failure.message if engine.failed_probes >= self._failures else ""

    async def _pause(self) -> None:
        await asyncio.sleep(min(_LONGEST_PAUSE, self._interval))

    async def _quiet(self, engine: Engine) -> None:
        """Wait until there is a reason to ask: a failure, or no token for too long."""
        while not engine.failed_probes:
            rest = engine.last_token + self._interval - time.monotonic()
            if rest <= 0:
                return
            try:
                async with asyncio.timeout(rest):
                    await engine.probe_wanted.wait()
                    return
            except TimeoutError:
                pass
