"""Calls of SandboxFusion's SDK over sessions with our headers and limits.

The SDK makes a session for each call, without headers, reads answers of any size, and raises a bare
``Exception`` for every status but 200. Here the caller reads each answer before the SDK does.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ParamSpec, TypeVar

import aiohttp
from sandbox_fusion import async_client

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What belongs to one call.

    Attributes:
        headers: Headers of the request.
        timeout: Limits of time, in place of the SDK's.
        read: Returns the body of the answer, or raises what the call is to raise.
    """

    headers: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    read: Callable[[aiohttp.ClientResponse], Awaitable[bytes]]

    async def call(
        self,
        function: Callable[Parameters, Awaitable[Answer]],
        *arguments: Parameters.args,
        **options: Parameters.kwargs,
    ) -> Answer:
        """Call a function of the SDK's asynchronous client."""
        token = _exchange.set(self)
        try:
            return await function(*arguments, **options)
        finally:
            _exchange.reset(token)


_exchange: ContextVar[Exchange] = ContextVar("exchange")


class _Response(aiohttp.ClientResponse):
    async def read(self) -> bytes:
        if self._body is None:
            self._body = await _exchange.get().read(self)
        return self._body


def _session(**_options: object) -> aiohttp.ClientSession:
    exchange = _exchange.get()
    return aiohttp.ClientSession(
        headers=exchange.headers, timeout=exchange.timeout, response_class=_Response
    )


# Every failure is told by the caller, which knows whether it is tried again.
logging.getLogger("sandbox_fusion").setLevel(logging.CRITICAL)
vars(async_client)["aiohttp"] = SimpleNamespace(
    ClientSession=_session, ClientTimeout=aiohttp.ClientTimeout
)
