"""Health checks: an engine is healthy if it generates a token.

An engine can answer ``/health`` with 200 although it is paused or its workers are dead, so a probe
requests a token. Tokens of other requests count as well.
"""

import asyncio
import json
import time
import uuid

import aiohttp

from services.generator.router.forwarder import is_aborted
from services.generator.router.metrics import count_tokens, fetch
from services.generator.router.replica import Engine
from services.generator.settings import GeneratorSettings
from shared.errors import ServiceError
from shared.service.logs import get_logger
from shared.text import one_line

log = get_logger(__name__)
# Seconds: for an engine's answer to /v1/models and /metrics, and between two failed probes.
_MODELS, _METRICS, _PAUSE = 30.0, 5.0, 1.0


class HealthCheck:
    """Probes engines, at startup and while they run.

    Attributes:
        session: HTTP client of the replicas, while the service runs.
    """

    session: aiohttp.ClientSession

    def __init__(self, settings: GeneratorSettings) -> None:
        self._interval = settings.router_probe_interval
        self._timeout = settings.router_probe_timeout
        self._failures = settings.router_probe_failures

    async def admit(self, engine: Engine) -> None:
        """Wait for an engine's first token.

        Raises:
            ServiceError: The engine does not report its model, or does not generate a token.
        """
        await self._find_model(engine)
        engine.suspect = True
        if reason := await self._until_failed(engine, recovers=True):
            raise ServiceError(f"{engine.name} generates no token: {reason}")

    async def until_unhealthy(self, engine: Engine) -> str:
        """Probe the engine until it must be ejected; returns the reason."""
        return await self._until_failed(engine, recovers=False)

    async def _until_failed(self, engine: Engine, *, recovers: bool) -> str:
        """Probe until enough probes in a row have failed; returns the reason of the last one.

        If ``recovers``, the first success ends it, and the reason is empty.
        """
        failures = 0
        while True:
            if not engine.suspect:
                failures = 0
                await self._until_due(engine)
            engine.probe_wanted.clear()
            reason = await self._probe(engine)
            if not reason and recovers:
                return ""
            if reason:
                log.warning("probe failed", replica=engine.rank, reason=reason)
                engine.suspect = True
                failures += 1
                if failures >= self._failures:
                    return reason
                await asyncio.sleep(min(_PAUSE, self._interval))

    async def _until_due(self, engine: Engine) -> None:
        """Wait until a probe is due: a request failed, or no token came for too long."""
        while (rest := engine.last_token + self._interval - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(rest):
                    await engine.probe_wanted.wait()
                    return
            except TimeoutError:
                pass

    async def _find_model(self, engine: Engine) -> None:
        """Query the name under which the engine serves its model."""
        limit = aiohttp.ClientTimeout(total=_MODELS)
        try:
            async with self.session.get(f"{engine.url}/v1/models", timeout=limit) as answer:
                engine.model = str((await answer.json())["data"][0]["id"])
        except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:
            raise ServiceError(
                f"{engine.name} does not report its model: {one_line(error)}"
            ) from None

    async def _probe(self, engine: Engine) -> str:
        """Request one token; returns the reason if no token was generated.

        Two other signs of progress count as success: a token of any other request since the probe
        began, or an increase of the engine's own token counters.
        """
        began = time.monotonic()
        before = await self._counted(engine) if engine.in_flight else None
        reason = await self._request_token(engine)
        if reason and engine.last_token > began:
            return ""
        if reason and (before is None or (await self._counted(engine) or 0) <= before):
            return reason
        engine.record_token()
        return ""

    async def _request_token(self, engine: Engine) -> str:
        request = {"model": engine.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        try:
            async with self.session.post(
                f"{engine.url}/v1/completions",
                data=json.dumps(request).encode(),
                headers={"X-Request-Id": f"probe-{uuid.uuid4().hex}"},
                timeout=aiohttp.ClientTimeout(total=self._timeout),
            ) as answer:
                return _failure(answer.status, await answer.read())
        except TimeoutError:
            return f"no token within {self._timeout:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return one_line(error)

    async def _counted(self, engine: Engine) -> float | None:
        return count_tokens(await fetch(self.session, engine.url, _METRICS))


def _failure(status: int, body: bytes) -> str:
    if status != 200:
        text = " ".join(body[:300].decode("utf-8", "replace").split())
        return f"the probe got HTTP {status}: {text}"
    if is_aborted(body):
        return "the probe was aborted"
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return "the probe's answer is not JSON"
    return "" if isinstance(answer, dict) and answer.get("choices") else "the probe got no choice"
