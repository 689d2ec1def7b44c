"""Sandbox stub: ours behind a proxy that lifts the memory limit of every program."""

import asyncio
import os
import signal
import tempfile
from pathlib import Path

from tests.judge.faulty_sandbox import NO_MEMORY_LIMIT, faulty
from tests.sandboxes import own_sandbox


async def main(port: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with tempfile.TemporaryDirectory() as folder, own_sandbox(Path(folder)) as url:
        async with faulty(url, NO_MEMORY_LIMIT, port=port):
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(int(os.environ["PORT"])))
