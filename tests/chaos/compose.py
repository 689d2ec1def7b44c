"""Rounds of faults on the stack of docker-compose.yml, which stays up for all of them."""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from redis.exceptions import RedisError

from shared.finished_run import open_run
from tests import waiting
from tests.chaos import invariants
from tests.chaos.compose_faults import Injector, connected, main_process
from tests.chaos.compose_schedule import AIMED, KILLS, ContainerFault, session
from tests.chaos.faults import kill_all
from tests.chaos.invariants import Invariant, Undisturbed, Violation
from tests.chaos.report import Findings, Report, play
from tests.chaos.schedule import QUIET, QUIET_SESSIONS, Session
from tests.compose.stack import ROOT, SERVICES, Stack, docker, health, settings

PROJECT = "plumblinechaos"
IMAGES = ("judge", "aggregator", "runner", "generator")
# Seconds in which a session ends, all containers are healthy again, and nothing is held any more.
_SESSION_SECONDS, _HEALTHY_SECONDS, _SETTLE_SECONDS = 300.0, 150.0, 90.0
# Complete, incomplete, a service is not there, interrupted, and by SIGKILL or SIGTERM.
_EXPECTED_ENDS = (0, 1, 2, 130, 137, 143)
# Folders of temporary files that all sandboxes share, and keep.
_SHARED = ("plumbline-modules-*", "plumbline-root-*")
_STARTED_BY_US = "PLUMBLINE_CHAOS_ENGINE"


def have_engine() -> None:
    """Start the command again with a Docker engine of its own, if none answers."""
    answers = subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    if answers or _STARTED_BY_US in os.environ:
        return
    engine = str(ROOT / "tests/compose/engine.sh")
    again = [engine, sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
    os.execve(engine, again, os.environ | {_STARTED_BY_US: "1"})


def rounds(options: argparse.Namespace, again: Callable[[int], str]) -> int:
    """Play rounds on a stack that is started for them; returns the exit code."""
    report = Report(ContainerFault, AIMED)
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as place,
        _stack(Path(place), options.judges) as stack,
    ):
        size = f"data.limit={options.problems}"
        expected = undisturbed(stack, size)
        draw = partial(session, dense=options.dense)

        def play_round(seed: int) -> tuple[Round, list[Path]]:
            logs = Path(place) / f"round-{seed}"
            one = Round(seed, stack, logs, size, options.faults, expected, report, draw)
            one.run()
            return one, [logs, one.output]

        try:
            return play(options, report, play_round, again)
        finally:
            kills = sum(report.made[kind, name] for kind, name in report.made if kind in KILLS)
            print(f"{kills} SIGKILLs of containers and processes in them", flush=True)
            kill_all()


@contextmanager
def _stack(folder: Path, judges: int) -> Iterator[Stack]:
    """Build the images and start the stack; at the end it is removed with its volumes."""
    subprocess.run(
        ["tests/compose/prepare.sh", *IMAGES], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    empty = folder / "no-data"
    empty.mkdir()
    stack = Stack(folder, settings(empty), PROJECT)
    stack.remove()
    try:
        stack.do("up", "-d", "--scale", f"judge={judges}")
        waiting.until("every service healthy", stack.healthy, _HEALTHY_SECONDS, every=0.5)
        yield stack
    finally:
        stack.remove()


def undisturbed(stack: Stack, size: str) -> Undisturbed:
    """The results of a run without faults."""
    process = stack.start(*_command("undisturbed", size))
    printed, _ = process.communicate(timeout=_SESSION_SECONDS)
    if process.returncode:
        raise SystemExit(f"a run without faults failed:\n{printed}")
    return Undisturbed.of(volume(stack, "outputs") / "undisturbed")


def _command(output: str, size: str) -> tuple[str, ...]:
    """The command of a run; without ``--no-deps`` Compose would start what is down itself.

    Canaries would rightly find that a sandbox without a core miscounts time.
    """
    runner = ("run", "--rm", "-T", "--no-deps", "runner")
    config = ("run", "--config", "configs/demo.yaml", f"output.dir=outputs/{output}")
    return *runner, *config, size, "generation.concurrency=1", "judge.canaries.enabled=false"


def volume(stack: Stack, name: str) -> Path:
    shown = docker("volume", "inspect", "-f", "{{.Mountpoint}}", f"{stack.project}_{name}")
    return Path(shown)


class Round(Findings):
    """One run, disturbed in its first sessions and repeated until it is published."""

    def __init__(
        self,
        seed: int,
        stack: Stack,
        logs: Path,
        size: str,
        kinds: Collection[ContainerFault],
        expected: Undisturbed,
        report: Report,
        draw: Callable[[int, int, Collection[ContainerFault]], Session] = session,
    ) -> None:
        super().__init__(seed, report)
        self._name = f"round-{seed}"
        self.output = volume(stack, "outputs") / self._name
        self._stack, self._logs, self._size = stack, logs, size
        self._kinds, self._expected, self._draw = kinds, expected, draw
        self._containers = {name: len(stack.containers(name)) for name in SERVICES}
        logs.mkdir()

    def run(self) -> None:
        for number in range(QUIET + QUIET_SESSIONS):
            code = self._session(number, self._draw(self._seed, number, self._kinds))
            self._check(invariants.unpublished(self.output, self._expected))
            if code == 0 or self.found:
                break
        else:
            self.found.append(Violation(Invariant.PUBLISHED, "not even in sessions without faults"))
        self._check(settled(self.recovered, _HEALTHY_SECONDS))
        if not self.found:
            self._check(invariants.files(self.output, self._expected, open_run(str(self.output))))
            self._check(settled(self._nothing_held, _SETTLE_SECONDS))
            self._check(self.left_files())
        if self.found:
            self._keep_logs()
        self._report.rounds += 1
        self._report.verdicts += len(self._expected.verdicts)
        self._report.violations += self.found

    def _session(self, number: int, drawn: Session) -> int:
        self._report.sessions += 1
        self._note(f"session {number}")
        log = self._logs / f"session-{number}.log"
        with log.open("w") as output:
            process = self._stack.start(*_command(self._name, self._size), output=output)
        injector = Injector(self._stack, self._note, self._report.made)
        ended = injector.run(drawn.faults, lambda: process.poll() is not None, _SESSION_SECONDS)
        if not ended:
            self.found.append(Violation(Invariant.ANSWER, f"{log.name}: no end"))
            for container in self._stack.containers("runner", oneoff=True):
                docker("rm", "-f", container, check=False)
        self.found += invariants.answered(process, log, 30.0, _EXPECTED_ENDS)
        self._note(f"{log.stem} ended with {process.returncode}: {invariants.last_line(log)}")
        return process.returncode if ended else -1

    # Checks

    def recovered(self) -> Iterator[Violation]:
        """Check that every container works again, and none is left of a command."""
        for name, number in self._containers.items():
            containers = self._stack.containers(name)
            if len(containers) != number:
                yield Violation(Invariant.CONTAINERS, f"{len(containers)} of {name}")
            for one in containers:
                if (status := health(one)["Status"]) != "healthy":
                    yield Violation(Invariant.CONTAINERS, f"{name} {one[:12]} is {status}")
        for one in self._stack.containers("runner", oneoff=True):
            yield Violation(Invariant.PROCESSES, f"container {one[:12]} of the command")

    def _nothing_held(self) -> Iterator[Violation]:
        run = open_run(str(self.output))
        try:
            with closing(connected(self._stack)) as redis:
                yield from invariants.ledger(redis, run)
                yield from invariants.held(redis)
        except (OSError, RedisError) as error:
            yield Violation(Invariant.LEDGER, f"cannot be read: {error}")
        yield from invariants.index(volume(self._stack, "index"), run)

    def left_files(self) -> list[Violation]:
        """Look for temporary files in the volumes and in the sandbox."""
        found = [
            violation
            for name in ("outputs", "index")
            for violation in invariants.temporary_files(volume(self._stack, name))
        ]
        if self._left_in_sandbox():
            # Of programs that were killed with it: the next start removes it.
            docker("restart", *self._stack.containers("sandbox"))
            found += settled(self.recovered, _HEALTHY_SECONDS)
        return [*found, *self._left_in_sandbox()]

    def _left_in_sandbox(self) -> list[Violation]:
        """Look for files there; the server holds a lock on those that it uses or keeps ready."""
        (container,) = self._stack.containers("sandbox")
        folder = Path(f"/proc/{main_process(container)}/root/tmp")
        left = invariants.leftovers(folder, _SHARED)
        return [violation for violation in left if not _locked(folder / violation.found)]

    def _keep_logs(self) -> None:
        """Keep what the containers printed in the round, and their states."""
        seconds = f"{int(self._seconds()) + 1}s"
        for name in SERVICES:
            for one in self._stack.containers(name):
                file = self._logs / f"{name}-{one[:12]}.log"
                with file.open("w") as output:
                    command = ["docker", "logs", "--timestamps", "--since", seconds, one]
                    subprocess.run(command, stdout=output, stderr=output, check=False)
                state = json.loads(docker("inspect", "-f", "{{json .State}}", one))
                self._note(f"{name} {one[:12]} at the end: {json.dumps(state)[:300]}")


def _locked(path: Path) -> bool:
    """Whether somebody holds a lock on a file or folder; one that is gone counts as held."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def settled(check: Callable[[], Iterator[Violation]], seconds: float) -> list[Violation]:
    """Repeat a check until nothing is found; what still is after so many seconds is returned."""
    ends = time.monotonic() + seconds
    while (found := [*check()]) and time.monotonic() < ends:
        time.sleep(0.5)
    return found
