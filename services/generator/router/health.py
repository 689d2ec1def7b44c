"""Health checks: an engine is healthy if it generates a token.

An engine can answer ``/health`` with 200 although it is paused or its workers are dead, so a probe
requests a token. Tokens of other requests count as well.
"""

import asyncio
import errno
import json
import time
import uuid
from dataclasses import dataclass

import aiohttp

from services.generator.router.connections import Connections
from services.generator.router.engine_metrics import count_tokens
from services.generator.router.replica import Engine, FailureReason, connection_failed
from services.generator.router.responses import is_aborted
from shared.errors import ServiceError
from shared.service.logs import get_logger
from shared.text import one_line

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Times are seconds.

    Args:
        interval: Time without a token after which a probe is sent.
        timeout: Limit for one probe, which may queue behind a long prefill.
        failures: Consecutive failed probes before an engine is ejected. One is enough if nothing
            listens there any more, or after a dropped connection unless it only timed out.
        pause: Pause between a failed probe and the next one, unless ``interval`` is shorter.
        models_timeout: Limit for an engine to report the name of its model.
        counters_timeout: Limit for an engine to report its token counters.
    """

    interval: float
    timeout: float
    failures: int
    pause: float = 1.0
    models_timeout: float = 30.0
    counters_timeout: float = 5.0


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """Cause of a failed probe.

    ``slow`` if the engine may only be busy, ``local`` if this process is out of resources,
    ``refused`` if nothing listens at the engine's address.
    """

    message: str
    slow: bool = False
    local: bool = False
    refused: bool = False


class HealthCheck:
    """Probes engines, at startup and while they run."""

    def __init__(self, connections: Connections, settings: ProbeSettings) -> None:
        self._connections = connections
        self._settings = settings

    async def admit(self, engine: Engine) -> None:
        """Wait for an engine's first token.

        Raises:
            ServiceError: The engine does not generate a token.
        """
        await self._find_model(engine)
        failures = 0
        while failure := await self._probe(engine):
            failures += 1
            if failures >= self._settings.failures:
                raise ServiceError(f"{engine.name} generates no token: {failure.message}")
            await self._pause()

    async def until_unhealthy(self, engine: Engine) -> str:
        """Probe the engine until it must be ejected; returns the reason."""
        while True:
            await self._until_due(engine)
            engine.probe_wanted.clear()
            failure = await self._probe(engine)
            if failure is None:
                continue
            if reason := self._record(engine, failure):
                return reason
            await self._pause()

    def _record(self, engine: Engine, failure: ProbeFailure) -> str:
        """Count a failed probe; returns the reason to eject the engine, empty to keep it."""
        log.warning("probe failed", replica=engine.rank, reason=failure.message)
        if failure.local:
            return ""
        engine.failed_probes += 1
        if engine.dropped and not failure.slow:
            return f"a connection was dropped, and then: {failure.message}"
        if failure.refused:
            return failure.message
        return failure.message if engine.failed_probes >= self._settings.failures else ""

    async def _pause(self) -> None:
        await asyncio.sleep(min(self._settings.pause, self._settings.interval))

    async def _until_due(self, engine: Engine) -> None:
        """Wait until a probe is due: a request failed, or no token came for too long."""
        while not engine.failed_probes:
            rest = engine.last_token + self._settings.interval - time.monotonic()
            if rest <= 0:
                return
            try:
                async with asyncio.timeout(rest):
                    await engine.probe_wanted.wait()
                    return
            except TimeoutError:
                pass

    async def _find_model(self, engine: Engine) -> None:
        """Query the name under which the engine serves its model.

        Raises:
            ServiceError: The engine does not report a model.
        """
        url, timeout = f"{engine.url}/v1/models", self._settings.models_timeout
        try:
            body = await self._connections.get(url, timeout)
            engine.model = str(json.loads(body)["data"][0]["id"])
        except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:
            raise ServiceError(
                f"{engine.name} does not report its model: {one_line(error)}"
            ) from None

    async def _probe(self, engine: Engine) -> ProbeFailure | None:
        """Request one token; returns the failure if no token was generated.

        Two other signs of progress count as success: a token of any other request since the probe
        began, or an increase of the engine's own token counters.
        """
        began = time.monotonic()
        before = await self._counted(engine) if engine.slots else None
        failure = await self._request_token(engine)
        if failure is None:
            engine.record_token()
        elif engine.last_token > began:
            return None
        elif before is not None and (await self._counted(engine) or 0) > before:
            engine.record_token()
            return None
        return failure

    async def _request_token(self, engine: Engine) -> ProbeFailure | None:
        request = {"model": engine.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        headers = {"X-Request-Id": f"probe-{uuid.uuid4().hex}"}
        url, body = f"{engine.url}/v1/completions", json.dumps(request).encode()
        timeout = self._settings.timeout
        try:
            async with self._connections.post(url, body, headers, total=timeout) as response:
                reason = _failure(response.status, await response.read())
        except TimeoutError:
            return ProbeFailure(f"no token within {timeout:g} s", slow=True)
        except (aiohttp.ClientError, OSError) as error:
            failure = connection_failed(error)
            return ProbeFailure(
                str(failure),
                local=failure.reason is FailureReason.ROUTER,
                refused=isinstance(error, OSError) and error.errno == errno.ECONNREFUSED,
            )
        return ProbeFailure(reason) if reason else None

    async def _counted(self, engine: Engine) -> float | None:
        url, timeout = f"{engine.url}/metrics", self._settings.counters_timeout
        try:
            text = await self._connections.get(url, timeout)
        except (aiohttp.ClientError, OSError):
            return None
        return count_tokens(text.decode("utf-8", "replace"))


def _failure(status: int, body: bytes) -> str:
    if status != 200:
        text = " ".join(body[:300].decode("utf-8", "replace").split())
        return f"the probe got HTTP {status}: {text}"
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return "the probe's answer is not JSON"
    if is_aborted(answer):
        return "the probe was aborted"
    return "" if isinstance(answer, dict) and answer.get("choices") else "the probe got no choice"
