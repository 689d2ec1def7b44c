"""Redis commands of concurrent tasks, sent together in one pipeline."""

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError
from redis.typing import EncodableT

Command = tuple[EncodableT, ...]
# Calls of a script in one command; Redis does nothing else meanwhile.
_MERGED_AT_ONCE = 64


class Script:
    """A Lua script, and the digest by which the server knows it once it is loaded."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[str], args: Sequence[EncodableT]) -> Command:
        return ("EVALSHA", self.sha, len(keys), *keys, *args)


MERGED = "merged"
"""The command of a call that consists of several."""

# The last lines of a script whose calls can be merged. It defines ``commands``, ``COMMAND``,
# ``FIRST`` (the number of the first argument after the head) and ``conclude``, which is done once
# for all calls. A merged call is its number of arguments, its command and what that takes. One that
# fails leaves the others alone, as a command of its own would.
RUN_COMMANDS = f"""
if COMMAND ~= '{MERGED}' then
  local reply = commands[COMMAND](unpack(ARGV, FIRST))
  conclude()
  return reply
end
local replies, at = {{}}, FIRST
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  local fine, reply = pcall(commands[ARGV[at + 1]], unpack(ARGV, at + 2, last))
  if not fine and type(reply) ~= 'table' then reply = {{ err = 'ERR ' .. tostring(reply) }} end
  if reply == nil then reply = false end
  replies[#replies + 1], at = reply, last + 1
end
conclude()
return replies
"""


@dataclass(slots=True)
class _Waiting:
    """Commands of one task, or a call that may be merged with those of others."""

    replies: asyncio.Future[Any]
    commands: Sequence[Command] = ()
    call: "_Call | None" = None


@dataclass(frozen=True, slots=True)
class _Call:
    script: Script
    keys: tuple[str, ...]
    head: Callable[[], Sequence[EncodableT]]
    args: Sequence[EncodableT]


@dataclass(slots=True)
class _Sent:
    """Commands of a pipeline, and who waits for them; several wait for a merged one."""

    commands: Sequence[Command]
    waiting: list[_Waiting] = field(default_factory=list)


class PipelinedRedis:
    """Sends the commands of all tasks of one event loop in pipelines, one pipeline at a time.

    Commands that are issued while a pipeline is under way share the next one, so the busier the
    process, the fewer round trips a command costs. The commands must be idempotent: a pipeline that
    fails is sent again as a whole. The caller closes ``redis``.

    Waking up costs Redis and this process more than most commands do, so a pipeline begins at least
    ``every`` seconds after the one before. After a pause, commands are sent at once.
    """

    def __init__(self, redis: Redis, *, every: float = 0.001) -> None:
        self._redis = redis
        self._every = every
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

    async def run_merged(
        self,
        script: Script,
        keys: tuple[str, ...],
        head: Callable[[], Sequence[EncodableT]],
        *args: EncodableT,
    ) -> Any:  # noqa: ANN401
        """Run one command of a script, in one call with others that wait at the same time.

        Args:
            script: It ends with ``RUN_COMMANDS``.
            keys: All keys. Calls with the same script, keys and head are merged.
            head: Makes the arguments that all of them have in common, ``MERGED`` first.
            args: The command and its own arguments.

        Raises:
            RedisError: As :meth:`run`.
        """
        self._scripts[script.sha] = script
        return await self._wait(_Waiting(_future(), call=_Call(script, keys, head, args)))

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands that stay together and in order, and return their replies.

        If the caller is cancelled, the commands are sent nevertheless.

        Raises:
            RedisError: As :meth:`run`; the first error of the commands.
        """
        if not commands:
            return []
        found: list[Any] = await self._wait(_Waiting(_future(), commands))
        return found

    async def _wait(self, waiting: _Waiting) -> Any:  # noqa: ANN401
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
            await asyncio.sleep(max(0.0, self._began + self._every - now))
            self._began = asyncio.get_running_loop().time()
            batch, self._waiting = self._waiting, []
            await self._send_batch(batch)

    async def _send_batch(self, batch: Sequence[_Waiting]) -> None:
        try:
            sent = _merge(batch)
            found = await self._execute([command for one in sent for command in one.commands])
        except Exception as error:  # noqa: BLE001 - whatever it is, those that wait must know
            for waiting in batch:
                if not waiting.replies.done():
                    waiting.replies.set_exception(error)
            return
        except asyncio.CancelledError:
            for waiting in batch:
                waiting.replies.cancel()
            raise
        start = 0
        for one in sent:
            own = found[start : start + len(one.commands)]
            start += len(one.commands)
            _deliver(one, own)

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


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _merge(batch: Sequence[_Waiting]) -> list[_Sent]:
    """Put calls of the same script with the same keys and head into one command."""
    sent: list[_Sent] = []
    merged: dict[object, _Sent] = {}
    for waiting in batch:
        call = waiting.call
        if call is None:
            sent.append(_Sent(waiting.commands, [waiting]))
            continue
        key = (call.script.sha, call.keys, call.head)
        into = merged.get(key)
        if into is None or len(into.waiting) >= _MERGED_AT_ONCE:
            into = merged[key] = _Sent(())
            sent.append(into)
        into.waiting.append(waiting)
    for into in sent:
        if calls := [one.call for one in into.waiting if one.call]:
            into.commands = [_merged_command(calls)]
    return sent


def _merged_command(calls: Sequence[_Call]) -> Command:
    first = calls[0]
    args = [part for call in calls for part in (len(call.args), *call.args)]
    return first.script.call(first.keys, [*first.head(), *args])


def _deliver(sent: _Sent, replies: Sequence[Any]) -> None:
    """Hand replies to those that wait for them; an error to whom it concerns."""
    if sent.waiting[0].call is None:
        refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
        each = [replies if refused is None else refused]
    elif isinstance(replies[0], Exception):
        each = [replies[0]] * len(sent.waiting)
    else:
        each = replies[0]
    for waiting, reply in zip(sent.waiting, each, strict=True):
        if waiting.replies.done():  # cancelled
            continue
        if isinstance(reply, Exception):
            waiting.replies.set_exception(reply)
        else:
            waiting.replies.set_result(reply)
