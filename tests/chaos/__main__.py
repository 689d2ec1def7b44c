"""`make chaos`: runs of the embedded stack, or of Compose's, under faults from a seeded schedule.

In each round a run is started on a small part of the demo data and disturbed; the command is
repeated until the run is published, and every invariant is checked between the sessions and at the
end. A round with a violation prints its seed and timeline and keeps its folder; `--replay SEED`
draws the same faults again. Ends with exit code 1 if anything was found.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from services.cli.interrupts import sigterm_as_interrupt
from tests.chaos import compose, invariants
from tests.chaos.compose_schedule import ContainerFault
from tests.chaos.faults import (
    Injector,
    adopt_orphans,
    end_with_parent,
    kill_all,
    small_disk,
    telling_redis,
)
from tests.chaos.invariants import Invariant, Undisturbed, Violation, distrusted
from tests.chaos.proxy import SandboxProxy, in_background
from tests.chaos.report import Findings, Report, play
from tests.chaos.reward import RewardTraffic
from tests.chaos.schedule import QUIET, QUIET_SESSIONS, Kind, Session, session
from tests.e2e import plumb
from tests.judge.faulty_sandbox import Result, always_fail, always_succeed, faulty, of_results

# Seconds in which a session ends, and in which the last process of a stack is gone.
_SESSION_SECONDS, _LEAVE_SECONDS = 180.0, 20.0
_GONE = "which Redis does not know"
# Folders of temporary files that all sandboxes of a user share, and keep.
_SHARED = ("plumbline-modules-*", "plumbline-root-*")


def main() -> int:
    options = _options()
    if options.stack == "compose":
        compose.have_engine()
    adopt_orphans()
    end_with_parent()
    try:
        with sigterm_as_interrupt():
            if options.stack == "compose":
                return compose.rounds(options, partial(_again, options))
            return _rounds(options)
    except KeyboardInterrupt:
        print("stopped from outside; nothing of it is left")
        return 130


def _rounds(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="chaos-") as place, ExitStack() as stack:
        Path(place).chmod(0o755)  # programs of other users have their folders below it
        folder, logs = Path(place) / "disk", Path(place) / "logs"
        folder.mkdir()
        kinds = set(options.faults)
        if Kind.FULL in kinds and not stack.enter_context(small_disk(folder)):
            print("no disk can be mounted here: the fault 'full' is left out")
            kinds.remove(Kind.FULL)
        sandbox = SandboxProxy()
        stack.enter_context(in_background(sandbox.serving()))
        size = (f"data.limit={options.problems}", f"judge.workers={options.judges}")
        report = Report()
        expected = _undisturbed(folder / "undisturbed", size)
        if Kind.SANDBOX in kinds:
            for violation in _lied_to(folder, sandbox):
                report.violations.append(violation)
                print(violation)
        draw = partial(session, dense=options.dense)

        def play_round(seed: int) -> tuple[Round, tuple[Path, Path]]:
            places = folder / f"round-{seed}", logs / f"round-{seed}"
            one = Round(seed, *places, size, kinds, expected, report, sandbox, draw)
            one.run()
            return one, places

        return play(options, report, play_round, partial(_again, options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=…", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round")
    parser.add_argument("--rounds", type=int, default=1_000_000, help="no more than so many rounds")
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="start no round later; 0: no limit"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="one round with this seed")
    parser.add_argument(
        "--faults", help=f"embedded: {', '.join(Kind)}; compose: {', '.join(ContainerFault)}"
    )
    parser.add_argument("--dense", action="store_true", help="many more faults in each session")
    parser.add_argument("--problems", type=int, default=4, help="of each of four data sets")
    parser.add_argument("--judges", type=int, default=2)
    parser.add_argument("--keep", default="outputs/chaos", help="where failed rounds are kept")
    parser.add_argument("--stack", choices=["embedded", "compose"], default="embedded")
    options = parser.parse_args()
    options.kinds = Kind if options.stack == "embedded" else ContainerFault
    names = options.faults.split(",") if options.faults else options.kinds
    options.faults = [options.kinds(name) for name in names]
    if options.replay is not None:
        options.seed, options.rounds, options.minutes = options.replay, 1, 0
    return options


def _again(options: argparse.Namespace, seed: int) -> str:
    """The arguments that draw a round's faults once more."""
    dense = " --dense" if options.dense else ""
    faults = (
        f" --faults {','.join(options.faults)}" if options.faults != list(options.kinds) else ""
    )
    size = f" --problems {options.problems} --judges {options.judges}"
    return f"--stack {options.stack} --replay {seed}{dense}{faults}{size}"


def _undisturbed(folder: Path, size: Sequence[str]) -> Undisturbed:
    temporary = _temporary(folder)
    log = folder / "log"
    try:
        with log.open("w") as output:
            code = subprocess.run(
                plumb.demo_run(folder / "out", *size),
                cwd=plumb.REPOSITORY,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=plumb.environment() | {"TMPDIR": str(temporary)},
            ).returncode
    finally:
        kill_all()
    if code:
        raise SystemExit(f"a run without faults failed:\n{log.read_text()}")
    return Undisturbed.of(folder / "out")


_LIES: dict[str, Callable[[Result], None]] = {"right": always_succeed, "wrong": always_fail}


def _lied_to(folder: Path, sandbox: SandboxProxy) -> Iterator[Violation]:
    """Run once for each sandbox that says of every program that it is right, or wrong."""
    for name, lie in _LIES.items():
        place = folder / f"lied-{name}"
        output = place / "out"
        own = {"TMPDIR": str(_temporary(place))}
        sandbox.port_file = _port_file(output)
        with in_background(faulty(sandbox.url, of_results(lie))) as url:
            arguments = _through_proxy(plumb.demo_run(output, "data.limit=1"), own, url)
            try:
                ended = subprocess.run(
                    arguments,
                    cwd=plumb.REPOSITORY,
                    capture_output=True,
                    text=True,
                    env=plumb.environment() | own,
                    timeout=_SESSION_SECONDS,
                )
            finally:
                kill_all()
        yield from distrusted(f"every program is {name}", ended.returncode)


def _through_proxy(arguments: list[str], environment: dict[str, str], url: str) -> list[str]:
    """The command whose judges reach its sandbox at a URL; changes the environment."""
    environment["CHAOS_SANDBOX"] = url
    return ["tests.chaos.command" if one == "services.cli" else one for one in arguments]


def _port_file(output: Path) -> Path:
    """Where the embedded sandbox tells its port."""
    return output / ".plumbline" / "sandbox.port"


def _temporary(folder: Path) -> Path:
    """Make a folder for temporary files, which programs of other users may use, too."""
    made = folder / "tmp"
    made.mkdir(parents=True)
    made.chmod(0o1777)
    return made


class Round(Findings):
    """One run, disturbed in its first sessions and repeated until it is published."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        logs: Path,
        size: Sequence[str],
        kinds: Set[Kind],
        expected: Undisturbed,
        report: Report,
        sandbox: SandboxProxy,
        draw: Callable[[int, int, Collection[Kind]], Session] = session,
    ) -> None:
        super().__init__(seed, report)
        self.folder, self.output, self._logs = folder, folder / "out", logs
        self._size, self._kinds, self._expected, self._draw = size, kinds, expected, draw
        self._sandbox = sandbox
        self._forced = False

    def run(self) -> None:
        self._temporary = _temporary(self.folder)
        self._logs.mkdir(parents=True)
        self._programs = telling_redis(self.folder / "programs")
        self._sandbox.port_file = _port_file(self.output)
        for number in range(QUIET + QUIET_SESSIONS):
            code = self._session(number, self._draw(self._seed, number, self._kinds))
            self._check(invariants.unpublished(self.output, self._expected))
            if code == 0 or self.found:
                break
        else:
            self.found.append(Violation(Invariant.PUBLISHED, "not even in sessions without faults"))
        if not self.found:
            self._check(invariants.published(self.output, self._expected))
            if invariants.leftovers(self._temporary, _SHARED):
                # Of processes killed as their command ended: the next start removes it.
                self._session(QUIET + QUIET_SESSIONS, Session())
            self._check(invariants.leftovers(self._temporary, _SHARED))
        self._report.rounds += 1
        self._report.verdicts += len(self._expected.verdicts)
        self._report.violations += self.found

    # Sessions

    def _session(self, number: int, drawn: Session) -> int:
        self._report.sessions += 1
        forced = " with --force" if self._forced else ""
        self._note(f"session {number}{forced}")
        log = self._logs / f"session-{number}.log"
        with self._command(log) as process:
            rewards: list[RewardTraffic] = []
            rivals: list[tuple[subprocess.Popen[str], Path]] = []

            def rival() -> None:
                place = self._logs / f"rival-{number}-{len(rivals)}.log"
                rivals.append((self._start(place), place))

            def reward(redis_url: str) -> None:
                if not rewards:
                    rewards.append(RewardTraffic(redis_url, self.folder, self._expected))

            injector = Injector(
                process.pid,
                self.folder.parent,
                self.output,
                self.folder / "redis.conf",
                rival,
                reward,
                self._sandbox,
                self._note,
                self._report.made,
            )
            ended = injector.run(drawn, lambda: process.poll() is not None, _SESSION_SECONDS)
            for traffic in rewards:
                traffic.end()
                self._report.rewards += traffic.judged
                self.found += traffic.found
            if not ended:
                self.found.append(Violation(Invariant.ANSWER, f"{log.name}: no end"))
                return -1
            for other, place in rivals:
                self._end(other, place)
            self._end(process, log)
            # The run is gone with Redis' file, and no command starts from nothing by itself.
            self._forced = process.returncode == 2 and _GONE in invariants.last_line(log)
            self._check(invariants.nobody_left(_LEAVE_SECONDS))
        return process.returncode

    @contextmanager
    def _command(self, log: Path) -> Iterator[subprocess.Popen[str]]:
        """Start the run's command; at the end nothing of it is left, whatever happened."""
        try:
            process = self._start(log)
            yield process
        finally:
            kill_all()

    def _start(self, log: Path) -> subprocess.Popen[str]:
        overrides = (
            *self._size,
            "generation.concurrency=2",
            "generation.replay.latency=0.4",
        )
        force = ("--force",) if self._forced else ()
        arguments = plumb.demo_run(self.output, *overrides, *force)
        own = {"TMPDIR": str(self._temporary), "PATH": f"{self._programs}:{os.environ['PATH']}"}
        if self._kinds & {Kind.SANDBOX, Kind.RESET}:
            arguments = _through_proxy(arguments, own, self._sandbox.url)
        with log.open("a") as output:
            return subprocess.Popen(
                arguments,
                cwd=plumb.REPOSITORY,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=plumb.environment() | own,
            )

    def _end(self, process: subprocess.Popen[str], log: Path) -> None:
        """Wait for a command, and check how it ended."""
        self.found += invariants.answered(process, log, _SESSION_SECONDS)
        self._note(f"{log.stem} ended with {process.returncode}: {invariants.last_line(log)}")


if __name__ == "__main__":
    sys.exit(main())
