"""Redis commands of concurrent tasks, sent together in one pipeline."""

import asyncio
import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError
from redis.typing import EncodableT

Command = tuple[EncodableT, ...]
_EVERY = 0.001


class Script:
    """A Lua script, and the digest by which the server knows it once it is loaded."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], args: Sequence[EncodableT]) -> Command:
        return ("EVALSHA", self.sha, len(keys), *keys, *args)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Commands of one task, which waits for the replies."""

    commands: Sequence[Command]
    replies: asyncio.Future[list[Any]]

    def deliver(self, replies: list[Any]) -> None:
        if self.replies.done():  # cancelled
            return
        refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
        if refused is None:
            self.replies.set_result(replies)
        else:
            self.replies.set_exception(refused)


class PipelinedRedis:
    """Sends the commands of all tasks of one event loop in pipelines, one pipeline at a time.

    Commands that are issued while a pipeline is under way share the next one, so the busier the
    process, the fewer round trips a command costs. The commands must be idempotent: a pipeline that
    fails is sent again as a whole. The caller closes ``redis``.

    Waking up costs more than most commands do, so a pipeline begins at least a millisecond after
    the previous one. After a pause, commands are sent at once.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._began = -math.inf
        self._scripts: dict[str, Script] = {}
        self._waiting: list[_Waiting] = []
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
        waiting = _Waiting(commands, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._sending is None:
            self._start_sending()
        return await waiting.replies

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
            now = asyncio.get_running_loop().time()
            # With no wait left, too, tasks that are about to run may add their commands.
            await asyncio.sleep(max(0.0, self._began + _EVERY - now))
            self._began = asyncio.get_running_loop().time()
            batch, self._waiting = self._waiting, []
            await self._send_batch(batch)

    async def _send_batch(self, batch: Sequence[_Waiting]) -> None:
        try:
            replies = iter(await self._execute([c for waiting in batch for c in waiting.commands]))
        except Exception as error:  # noqa: BLE001 - whatever it is, those that wait must know
            for waiting in batch:
                waiting.deliver([error])
            return
        except asyncio.CancelledError:
            for waiting in batch:
                waiting.replies.cancel()
            raise
        for waiting in batch:
            waiting.deliver(list(itertools.islice(replies, len(waiting.commands))))

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
