"""A TCP proxy on loopback whose connections can be cut, all at once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class CuttableProxy:
    """Passes bytes on between clients and a server.

    Attributes:
        url: Where clients connect to.
        cut_at: When connections were cut last, on the monotonic clock.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.url = ""
        self.cut_at = float("-inf")
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> int:
        """Abort all connections; return their number."""
        self.cut_at = time.monotonic()
        number = len(self._open) // 2
        for writer in self._open:
            writer.transport.abort()
        return number

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["CuttableProxy"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()
            while self._open:
                await asyncio.sleep(0.01)

    def target(self) -> str:
        """URL of the server at the moment."""
        return self._target

    async def forth(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, _: asyncio.StreamWriter
    ) -> None:
        """Pass on what a client says; the last argument answers it."""
        await pass_on(reader, server)

    async def back(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Pass on what the server says."""
        await pass_on(reader, client)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            address = urlsplit(self.target())
            there, back = await asyncio.open_connection(address.hostname, address.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, back}
        self._open |= ends
        try:
            await asyncio.gather(self.forth(reader, back, writer), self.back(there, writer))
        finally:
            self._open -= ends
            for end in ends:
                end.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until an end is closed; then so is the other."""
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    # A client that is gone is told to the service, as without a proxy.
    writer.close()
