"""Redis commands of concurrent tasks, sent together in one pipeline."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError
from redis.typing import EncodableT

Command = tuple[EncodableT, ...]


class Script:
    """A Lua script, and the digest by which the server knows it once it is loaded."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], args: Sequence[EncodableT]) -> Command:
        return ("EVALSHA", self.sha, len(keys), *keys, *args)


class PipelinedRedis:
    """Sends the commands of all tasks of one event loop in pipelines, one pipeline at a time.

    Commands that are issued while a pipeline is under way share the next one, so the busier the
    process, the fewer round trips a command costs. The commands must be idempotent: a pipeline that
    fails is sent again as a whole. The caller closes ``redis``.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._scripts: dict[str, Script] = {}
        self._waiting: list[tuple[Sequence[Command], asyncio.Future[list[Any]]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[EncodableT]) -> Any:  # noqa: ANN401
        """Run a script, and return its reply.

        Raises:
            RedisError: The server refuses the command, or is still unavailable after all retries.
        """
        self._scripts[script.sha] = script
        return (await self.send([script.call(keys, args)]))[0]

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands that stay together and in order, and return their replies.

        If the caller is cancelled, the commands are sent nevertheless.

        Raises:
            RedisError: As :meth:`run`; the first error of the commands.
        """
        if not commands:
            return []
        replies: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, replies))
        if self._sending is None:
            self._start_sending()
        return await replies

    def _start_sending(self) -> None:
        self._sending = asyncio.create_task(self._send_waiting())
        self._sending.add_done_callback(self._ended)

    def _ended(self, _sending: asyncio.Task[None]) -> None:
        # It may have been cancelled with all tasks of the loop, even before it began; the others
        # may have commands for their clean-up.
        self._sending = None
        if self._waiting:
            self._start_sending()

    async def _send_waiting(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # tasks that are about to run may add their commands
            batch, self._waiting = self._waiting, []
            await self._send_batch(batch)

    async def _send_batch(
        self, batch: Sequence[tuple[Sequence[Command], asyncio.Future[list[Any]]]]
    ) -> None:
        try:
            found = await self._execute([command for commands, _ in batch for command in commands])
        except Exception as error:  # noqa: BLE001 - whatever it is, those that wait must know
            for _, replies in batch:
                if not replies.done():
                    replies.set_exception(error)
            return
        except asyncio.CancelledError:
            for _, replies in batch:
                replies.cancel()
            raise
        start = 0
        for commands, replies in batch:
            own = found[start : start + len(commands)]
            start += len(commands)
            if replies.done():  # cancelled
                continue
            refused = next((reply for reply in own if isinstance(reply, Exception)), None)
            if refused is None:
                replies.set_result(own)
            else:
                replies.set_exception(refused)

    async def _execute(self, commands: Sequence[Command]) -> list[Any]:
        replies = await self._pipeline(commands)
        if missing := [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]:
            # A new server, or one that has restarted. Only the refused commands are sent again.
            scripts = {str(commands[i][1]) for i in missing}
            await self._pipeline([("SCRIPT LOAD", self._scripts[sha].source) for sha in scripts])
            again = await self._pipeline([commands[i] for i in missing])
            for i, reply in zip(missing, again, strict=True):
                replies[i] = reply
        return replies

    async def _pipeline(self, commands: Sequence[Command]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return await pipe.execute(raise_on_error=False)
