"""Whether an engine generates: the one sign of health that is trusted.

An engine whose ``/health`` answers 200 may be stopped, paused or dead inside.
"""

import json
import time
import uuid
from dataclasses import dataclass

import aiohttp

from services.generator.router.answers import is_aborted
from services.generator.router.connections import Connections
from services.generator.router.engine import Engine
from services.generator.router.engine_metrics import tokens_counted
from services.generator.router.failures import Reason, connection_failed
from shared.errors import ServiceError

_NAMING = 30.0
_LOOK = 5.0


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """``slow``: the engine may only be busy. ``ours``: this process is out of sockets."""

    message: str
    slow: bool = False
    ours: bool = False


class Prober:
    """Times are seconds; ``timeout`` is for one probe, which may queue behind a long prefill."""

    def __init__(self, connections: Connections, *, timeout: float) -> None:
        self._connections = connections
        self._timeout = timeout

    async def find_model(self, engine: Engine) -> None:
        """Learn what the engine calls its model.

        Raises:
            ServiceError: It does not say.
        """
        try:
            body = await self._connections.get(f"{engine.url}/v1/models", _NAMING)
            engine.model = str(json.loads(body)["data"][0]["id"])
        except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as error:
            said = str(error) or type(error).__name__
            raise ServiceError(f"{engine.name} does not name its model: {said}") from None

    async def probe(self, engine: Engine) -> ProbeFailure | None:
        """Have one token generated; returns why none came.

        A sign of life from elsewhere counts as well: a token for any other request since the probe
        began, or the engine's own counters, where it has some.
        """
        began = time.monotonic()
        before = await self._counted(engine) if engine.leases else None
        trouble = await self._ask(engine)
        if trouble is None:
            engine.gave_token()
        elif engine.last_token > began:
            return None
        elif before is not None and (await self._counted(engine) or 0) > before:
            engine.gave_token()
            return None
        return trouble

    async def _ask(self, engine: Engine) -> ProbeFailure | None:
        question = {"model": engine.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        headers = {"X-Request-Id": f"probe-{uuid.uuid4().hex}"}
        url, body = f"{engine.url}/v1/completions", json.dumps(question).encode()
        try:
            async with self._connections.post(url, body, headers, total=self._timeout) as response:
                trouble = _trouble(response.status, await response.read())
        except TimeoutError:
            return ProbeFailure(f"no token within {self._timeout:g} s", slow=True)
        except (aiohttp.ClientError, OSError) as error:
            failure = connection_failed(error)
            return ProbeFailure(str(failure), ours=failure.reason is Reason.ROUTER)
        return ProbeFailure(trouble) if trouble else None

    async def _counted(self, engine: Engine) -> float | None:
        try:
            text = await self._connections.get(f"{engine.url}/metrics", _LOOK)
        except (aiohttp.ClientError, OSError):
            return None
        return tokens_counted(text.decode("utf-8", "replace"))


def _trouble(status: int, body: bytes) -> str:
    if status != 200:
        said = " ".join(body[:300].decode("utf-8", "replace").split())
        return f"the probe got HTTP {status}: {said}"
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return "the probe's answer is not JSON"
    if is_aborted(answer):
        return "the probe was aborted"
    return "" if isinstance(answer, dict) and answer.get("choices") else "the probe got no choice"
