"""Child process of the service: spawn, exchange messages as JSON lines, stop.

Other output is buffered, so that an error can name the cause of a failure.
"""

import asyncio
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TypeVar

from pydantic import BaseModel

from services.generator.backends.verl.messages import Event, Failed, Phase, read_event
from services.generator.router.replica import NoPlacementError
from shared.errors import ConfigError, ServiceError
from shared.process_environment import die_with_parent
from shared.service.logs import get_logger
from shared.service.processes import cancel_and_wait
from shared.text import one_line

log = get_logger(__name__)
T = TypeVar("T")
_KEPT_LINES = 400
_LONGEST_LINE = 1 << 20
_LAST_OUTPUT_SECONDS = 1.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE = re.compile(r"(?:^|[\s:])(?:[a-z_]+\.)*([A-Z]\w*(?:Error|Exception|Interrupt): .+)$")
# Errors that report a failure without its cause.
_GENERIC_ERRORS = (
    "Engine core initialization failed",
    "EngineCore failed to start",
    "ray::",
    "Ray",
)


class Child:
    """A child process that runs ``python -m module`` in this environment.

    ``name`` is its name in log lines and errors, ``labels`` are fields of its log lines.
    """

    def __init__(
        self, module: str, name: str, environment: Mapping[str, str], **labels: object
    ) -> None:
        self._module = module
        self._name = name
        self._environment = environment
        self._log = log.bind(**labels)
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pipes: list[asyncio.ReadTransport] = []
        self._events = asyncio.StreamReader()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start the process; raises ServiceError if the system has no room for it."""
        try:
            with ExitStack() as write_ends:
                events, event_end = await self._pipe(write_ends)
                output, output_end = await self._pipe(write_ends)
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    self._module,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=event_end,
                    stderr=output_end,
                    env=dict(self._environment),
                    start_new_session=True,  # Ctrl-C reaches the parent, which stops its children
                    preexec_fn=die_with_parent(signal.SIGTERM),
                )
        except OSError as error:
            self._close_pipes()
            raise ServiceError(f"{self._name} cannot be started: {error}") from None
        self._events = events
        self._reader = asyncio.create_task(self._read_output(output))

    async def _pipe(self, write_ends: ExitStack) -> tuple[asyncio.StreamReader, int]:
        """Open a pipe, whose read end can be closed at any time.

        asyncio's own stays open while a descendant of the child holds it.
        """
        read_end, write_end = os.pipe()
        write_ends.callback(os.close, write_end)
        lines = asyncio.StreamReader(limit=_LONGEST_LINE)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(read_end, "rb", buffering=0)
        )
        self._pipes.append(transport)
        return lines, write_end

    async def send(self, message: BaseModel) -> None:
        """Send one message; if the child has exited, the next :meth:`next_event` raises."""
        assert self._process is not None
        assert self._process.stdin is not None
        if self._process.stdin.is_closing():
            return
        with suppress(ConnectionError):
            self._process.stdin.write(message.model_dump_json().encode() + b"\n")
            await self._process.stdin.drain()

    async def next_event(self) -> Event:
        """Wait for the child's next event; phases are logged and skipped.

        Raises:
            ConfigError: The child rejects its configuration.
            NoPlacementError: No machine has room for what it should start.
            ServiceError: The child failed or exited.
        """
        assert self._process is not None
        while line := await self._event_line():
            try:
                event = read_event(line)
            except ValueError as error:
                text = f"{self._name} sent an invalid event: {one_line(error)}"
                raise ServiceError(text) from None
            if isinstance(event, Phase):
                self._log.info("phase done", phase=event.phase, seconds=event.seconds)
                continue
            if isinstance(event, Failed):
                raise self._failure(event)
            # An error before this success is not the cause of a later failure.
            self._lines.clear()
            return event
        code = await self._process.wait()
        if self._reader is not None:
            # A descendant that lives on may keep the pipe open.
            await asyncio.wait([self._reader], timeout=_LAST_OUTPUT_SECONDS)
        reason = self.cause() or (self._lines[-1] if self._lines else "no output")
        raise ServiceError(f"{self._name} ended with exit code {code}: {reason}")

    async def expect(self, kind: type[T]) -> T:
        """As :meth:`next_event`, which must be of this kind."""
        event = await self.next_event()
        if not isinstance(event, kind):
            raise ServiceError(f"{self._name} sent {event.kind!r} instead of {kind.__name__}")
        return event

    async def _event_line(self) -> bytes:
        try:
            return await self._events.readline()
        except ValueError:  # longer than the reader's limit
            raise ServiceError(f"{self._name} sent an event that is too long") from None

    def cause(self) -> str:
        """The first specific error in the child's output, else an empty string."""
        causes = [match[1] for line in self._lines if (match := _CAUSE.search(line))]
        specific = [cause for cause in causes if not any(part in cause for part in _GENERIC_ERRORS)]
        return (specific or causes or [""])[0][:500]

    async def stop(self, grace: float = 15.0) -> None:
        """Terminate the child, and kill it after ``grace`` seconds. Idempotent."""
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(grace):
                await process.wait()
        except TimeoutError:
            self._log.warning("killed after timeout", process=self._name, seconds=grace)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._reader is not None:
            await cancel_and_wait(self._reader)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    def _failure(self, event: Failed) -> ConfigError | ServiceError:
        if event.refused:
            return ConfigError(event.reason)
        if event.unplaced:
            return NoPlacementError(f"{self._name}: {event.reason}")
        cause = self.cause()
        for line in self._lines:
            self._log.info("output before the failure", line=line)
        if not cause or cause in event.reason:
            return ServiceError(f"{self._name}: {event.reason}")
        return ServiceError(f"{self._name}: {cause} ({event.reason})")

    async def _read_output(self, output: asyncio.StreamReader) -> None:
        while True:
            try:
                raw = await output.readline()
            except ValueError:  # longer than the limit
                continue
            if not raw:
                return
            line = _COLOUR.sub("", raw.decode("utf-8", "replace")).rstrip()
            if line:
                self._lines.append(line)
                self._log.debug("output", line=line)
