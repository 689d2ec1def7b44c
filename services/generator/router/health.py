"""Health checks: an engine is healthy if it generates a token.

An engine can answer ``/health`` with 200 although it is paused or its workers are dead, so a probe
requests a token. Tokens of other requests count as well.
"""

import asyncio
import json
import time
import uuid

import aiohttp

from services.generator.protocol import is_aborted
from services.generator.router.metrics import count_tokens, fetch
from services.generator.router.replica import Replica
from services.generator.settings import GeneratorSettings
from shared.errors import ServiceError
from shared.service.logs import get_logger
from shared.text import one_line

log = get_logger(__name__)
# Seconds: for an engine's answer to /v1/models and /metrics, and between two failed probes.
_MODELS, _METRICS, _PAUSE = 30.0, 5.0, 1.0


class HealthCheck:
    """Probes engines, at startup and while they run."""

    session: aiohttp.ClientSession
    """HTTP client of the replicas, while the service runs."""

    def __init__(self, settings: GeneratorSettings) -> None:
        self._interval = settings.router_probe_interval
        self._timeout = settings.router_probe_timeout
        self._failures = settings.router_probe_failures

    async def admit(self, replica: Replica) -> None:
        """Wait for an engine's first token.

        Raises:
            ServiceError: The engine does not report its model, or does not generate a token.
        """
        await self._find_model(replica)
        replica.suspect = True
        if reason := await self._until_failed(replica, recovers=True):
            raise ServiceError(f"{replica.name} generates no token: {reason}")

    async def until_unhealthy(self, replica: Replica) -> str:
        """Probe the engine until it must be ejected; returns the reason."""
        return await self._until_failed(replica, recovers=False)

    async def _until_failed(self, replica: Replica, *, recovers: bool) -> str:
        """Probe until enough probes in a row have failed; returns the reason of the last one.

        If ``recovers``, the first success ends it, and the reason is empty.
        """
        failures = 0
        while True:
            if not replica.suspect:
                failures = 0
                await self._until_due(replica)
            replica.probe_wanted.clear()
            reason = await self._probe(replica)
            if not reason and recovers:
                return ""
            if reason:
                log.warning("probe failed", replica=replica.rank, reason=reason)
                replica.suspect = True
                failures += 1
                if failures >= self._failures:
                    return reason
                await asyncio.sleep(min(_PAUSE, self._interval))

    async def _until_due(self, replica: Replica) -> None:
        """Wait until a probe is due: a request failed, or no token came for too long."""
        while (rest := replica.last_token + self._interval - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(rest):
                    await replica.probe_wanted.wait()
                    return
            except TimeoutError:
                pass

    async def _find_model(self, replica: Replica) -> None:
        """Query the name under which the engine serves its model."""
        limit = aiohttp.ClientTimeout(total=_MODELS)
        try:
            async with self.session.get(f"{replica.url}/v1/models", timeout=limit) as answer:
                replica.model = str((await answer.json())["data"][0]["id"])
        except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:
            raise ServiceError(
                f"{replica.name} does not report its model: {one_line(error)}"
            ) from None

    async def _probe(self, replica: Replica) -> str:
        """Request one token; returns the reason if no token was generated.

        Two other signs of progress count as success: a token of any other request since the probe
        began, or an increase of the engine's own token counters.
        """
        began = time.monotonic()
        before = await self._counted(replica) if replica.in_flight else None
        reason = await self._request_token(replica)
        if reason and replica.last_token > began:
            return ""
        if reason and (before is None or (await self._counted(replica) or 0) <= before):
            return reason
        replica.record_token()
        return ""

    async def _request_token(self, replica: Replica) -> str:
        request = {"model": replica.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        try:
            async with self.session.post(
                f"{replica.url}/v1/completions",
                data=json.dumps(request).encode(),
                headers={"X-Request-Id": f"probe-{uuid.uuid4().hex}"},
                timeout=aiohttp.ClientTimeout(total=self._timeout),
            ) as answer:
                return _failure(answer.status, await answer.read())
        except TimeoutError:
            return f"no token within {self._timeout:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return one_line(error)

    async def _counted(self, replica: Replica) -> float | None:
        return count_tokens(await fetch(self.session, replica.url, _METRICS))


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
