"""A sandbox that is hung or slow, or answers nonsense: a proxy before the embedded one."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from tests.chaos.schedule import HUNG, LATE
from tests.endurance.connections import CuttableProxy

_LATE_SECONDS = 0.3
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_METHODS = (b"GET ", b"POST ")


def _response(status: str, body: bytes, missing: int = 0) -> bytes:
    length = f"Content-Length: {len(body) + missing}\r\nContent-Type: application/json\r\n"
    return f"HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n".encode() + body


_WRONG = {
    "500": _response("500 Internal Server Error", b"out of order"),
    "503": _response("503 Service Unavailable", b"busy"),
    "garbage": _response("200 OK", bytes(range(256)) * 8),
    "shape": _response("200 OK", b'{"cases": [1, {"stdout": null}], "status": 7}'),
    "truncated": _response("200 OK", b'{"status": "Success", "run_result": {"std', missing=5000),
}


_Served = TypeVar("_Served")


@contextmanager
def in_background(server: AbstractAsyncContextManager[_Served]) -> Iterator[_Served]:
    """Serve in a thread while the block runs; an interrupt ends it at any moment."""
    started: Future[_Served] = Future()
    over = threading.Event()

    async def serve() -> None:
        async with server as served:
            started.set_result(served)
            await asyncio.to_thread(over.wait)

    with ThreadPoolExecutor(1) as threads:
        try:
            serving = threads.submit(asyncio.run, serve())
            serving.add_done_callback(lambda _: started.cancel())
            yield started.result()
        finally:
            over.set()
        serving.result()


class SandboxProxy(CuttableProxy):
    """Passes calls on to the sandbox whose port is in a file, unless it is told otherwise.

    Its methods are for another thread than the one in which it serves.
    """

    def __init__(self) -> None:
        super().__init__("")
        self.port_file = Path()
        self._fault = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    def target(self) -> str:
        return f"http://127.0.0.1:{self.port_file.read_text().strip()}"

    def disturb(self, fault: str) -> None:
        """Be hung, late, or wrong from now on; the empty text ends it.

        Calls to a hung sandbox never get an answer: their connections end with the fault.
        """
        hung, self._fault = self._fault == HUNG, fault
        if hung:
            self.reset()

    def reset(self) -> None:
        """End all connections with RST."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.cut)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["SandboxProxy"]:
        self._loop = asyncio.get_running_loop()
        async with super().serving():
            yield self

    async def forth(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
    ) -> None:
        try:
            while data := await reader.read(65_536):
                if self._fault in _WRONG and data.startswith(_METHODS):
                    await _read_rest(reader, data)
                    client.write(_WRONG[self._fault])
                    await client.drain()
                    client.close()
                    return
                await self._hang()
                server.write(data)
                await server.drain()
        except (OSError, EOFError):
            pass
        finally:
            server.close()

    async def back(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self._hang()
                if self._fault == LATE:
                    await asyncio.sleep(_LATE_SECONDS)
                client.write(data)
                await client.drain()
        except OSError:
            pass
        finally:
            client.close()

    async def _hang(self) -> None:
        while self._fault == HUNG:
            await asyncio.sleep(0.02)


async def _read_rest(reader: asyncio.StreamReader, data: bytes) -> None:
    """Read the rest of a request, of which ``data`` came at once."""
    head, separator, body = data.partition(b"\r\n\r\n")
    if not separator:
        head += await reader.readuntil(b"\r\n\r\n")
    if found := _LENGTH.search(head):
        await reader.readexactly(max(0, int(found[1]) - len(body)))
