"""`make chaos`: runs of the embedded stack under faults from a seeded schedule.

In each round a run is started on a small part of the demo data and disturbed; the command is
repeated until the run is published, and every invariant is checked between the sessions and at the
end. A round with a violation prints its seed and timeline and keeps its folder; `--replay SEED`
draws the same faults again. Ends with exit code 1 if anything was found.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from services.cli.interrupts import sigterm_as_interrupt
from tests.chaos import invariants
from tests.chaos.faults import Injector, adopt_orphans, end_with_parent, kill_all
from tests.chaos.invariants import Invariant, Undisturbed, Violation
from tests.chaos.schedule import QUIET, QUIET_SESSIONS, SIGNALS, Kind, Session, session
from tests.e2e import plumb

# Seconds in which a session ends, and in which the last process of a stack is gone.
_SESSION_SECONDS, _LEAVE_SECONDS = 180.0, 20.0
_GONE = "which Redis does not know"
# Temporary files that may stay; the last is the empty file by which Python looks whether a folder
# is writable.
_SHARED = (*invariants.SHARED_FILES, "????????")


def main() -> int:
    options = _options()
    adopt_orphans()
    end_with_parent()
    try:
        with sigterm_as_interrupt(), tempfile.TemporaryDirectory(prefix="chaos-") as place:
            Path(place).chmod(0o755)  # programs of other users have their folders below it
            return _rounds(options, Path(place))
    except KeyboardInterrupt:
        print("stopped from outside; nothing of it is left")
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=…", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round")
    parser.add_argument("--rounds", type=int, default=1_000_000, help="no more than so many rounds")
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="start no round later; 0: no limit"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="one round with this seed")
    parser.add_argument("--faults", default=",".join(Kind), help="kinds of faults (%(default)s)")
    parser.add_argument("--problems", type=int, default=4, help="of each of four data sets")
    parser.add_argument("--judges", type=int, default=2)
    parser.add_argument("--keep", default="outputs/chaos", help="where failed rounds are kept")
    options = parser.parse_args()
    options.kinds = [Kind(name) for name in options.faults.split(",")]
    if options.replay is not None:
        options.seed, options.rounds, options.minutes = options.replay, 1, 0
    return options


def _rounds(options: argparse.Namespace, folder: Path) -> int:
    """Play rounds with one seed after the other until the time is used up; returns exit code."""
    size = (f"data.limit={options.problems}", f"judge.workers={options.judges}")
    expected = _undisturbed(folder / "undisturbed", size)
    report = Report()
    ends = time.monotonic() + 60 * options.minutes
    try:
        for seed in range(options.seed, options.seed + options.rounds):
            if options.minutes and time.monotonic() > ends:
                break
            run = Round(seed, folder / f"round-{seed}", size, options.kinds, expected, report)
            run.run()
            if run.found:
                run.tell(f"--replay {seed} --faults {options.faults} --problems {options.problems}")
                kept = Path(options.keep) / f"round-{seed}-{os.getpid()}"
                shutil.copytree(run.folder, kept, dirs_exist_ok=True)
                print(f"its folder is kept: {kept}", flush=True)
            shutil.rmtree(run.folder, ignore_errors=True)
    finally:
        report.tell()
    return 1 if report.violations else 0


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


def _temporary(folder: Path) -> Path:
    """Make a folder for temporary files, which programs of other users may use, too."""
    made = folder / "tmp"
    made.mkdir(parents=True)
    made.chmod(0o1777)
    return made


class Report:
    """Totals over all rounds."""

    def __init__(self) -> None:
        self.made: Counter[tuple[str, str]] = Counter()
        self.rounds = self.sessions = self.checked = self.verdicts = 0
        self.violations: list[Violation] = []
        self._began = time.monotonic()

    def tell(self) -> None:
        """Print the faults by kind and victim, and what was found."""
        rows = {
            name: {kind: self.made[kind, name] for kind in SIGNALS}
            for name in sorted({victim for kind, victim in self.made if kind in SIGNALS})
        }
        rows["all"] = {kind: sum(row[kind] for row in rows.values()) for kind in SIGNALS}
        print(f"\n{'signals':14}" + "".join(f"{kind:>12}" for kind in SIGNALS))
        for name, row in rows.items():
            print(f"{name:14}" + "".join(f"{number:>12}" for number in row.values()))
        print("others:", ", ".join(f"{k} {self.made[k, '']}" for k in Kind if k not in SIGNALS))
        minutes = (time.monotonic() - self._began) / 60
        print(
            f"{self.rounds} rounds, {self.sessions} sessions and {self.verdicts} verdicts in "
            f"{minutes:.1f} minutes; invariants checked {self.checked} times"
        )
        counts = Counter(violation.invariant.name.lower() for violation in self.violations)
        shown = {"lost": 0, "doubled": 0, "changed": 0} | counts
        print(", ".join(f"{number} {name}" for name, number in shown.items()), flush=True)


class Round:
    """One run, disturbed in its first sessions and repeated until it is published.

    Attributes:
        folder: The folder of the run, its logs and its temporary files.
        found: Violations.
    """

    def __init__(
        self,
        seed: int,
        folder: Path,
        size: Sequence[str],
        kinds: Sequence[Kind],
        expected: Undisturbed,
        report: Report,
    ) -> None:
        self.folder = folder
        self.found: list[Violation] = []
        self._seed, self._size, self._kinds = seed, size, kinds
        self._expected, self._report = expected, report
        self._output, self._logs = folder / "out", folder / "logs"
        self._temporary = _temporary(folder)
        self._timeline: list[str] = []
        self._began = time.monotonic()
        self._forced = False

    def run(self) -> None:
        self._logs.mkdir()
        for number in range(QUIET + QUIET_SESSIONS):
            code = self._session(number, session(self._seed, number, self._kinds))
            self._check(invariants.unpublished(self._output, self._expected))
            if code == 0 or self.found:
                break
        else:
            self.found.append(Violation(Invariant.PUBLISHED, "not even in sessions without faults"))
        if not self.found:
            self._check(invariants.published(self._output, self._expected))
            if invariants.leftovers(self._temporary, _SHARED):
                # Of processes killed as their command ended: the next start removes it.
                self._session(QUIET + QUIET_SESSIONS, Session())
            self._check(invariants.leftovers(self._temporary, _SHARED))
        self._report.rounds += 1
        self._report.verdicts += len(self._expected.verdicts)
        self._report.violations += self.found

    def tell(self, again: str) -> None:
        """Print what was found, with the timeline that led to it."""
        print(f"\nround with seed {self._seed}; again: make chaos ARGS='{again}'")
        print("\n".join(self._timeline))
        print("\n".join(str(violation) for violation in self.found), flush=True)

    def _session(self, number: int, drawn: Session) -> int:
        """Run the command once under faults; at the end nothing of it is left."""
        self._report.sessions += 1
        self._note(f"session {number}{' with --force' if self._forced else ''}")
        log = self._logs / f"session-{number}.log"
        rivals: list[tuple[subprocess.Popen[str], Path]] = []

        def rival() -> None:
            place = self._logs / f"rival-{number}-{len(rivals)}.log"
            rivals.append((self._start(place), place))

        try:
            process = self._start(log)
            made = self._report.made
            injector = Injector(process.pid, self._output, rival, self._note, made)
            if not injector.run(drawn, lambda: process.poll() is not None, _SESSION_SECONDS):
                self.found.append(Violation(Invariant.ANSWER, f"{log.name}: no end"))
                return -1
            for other, place in [*rivals, (process, log)]:
                self.found += invariants.answered(other, place, _SESSION_SECONDS)
                ended = f"{place.stem} ended with {other.returncode}"
                self._note(f"{ended}: {invariants.last_line(place)}")
            # The run is gone with Redis' file, and no command starts from nothing by itself.
            self._forced = process.returncode == 2 and _GONE in invariants.last_line(log)
            self._check(invariants.nobody_left(_LEAVE_SECONDS))
        finally:
            kill_all()
        return process.returncode

    def _start(self, log: Path) -> subprocess.Popen[str]:
        replay = ("generation.concurrency=2", "generation.replay.latency=0.4")
        force = ("--force",) if self._forced else ()
        with log.open("a") as output:
            return subprocess.Popen(
                plumb.demo_run(self._output, *self._size, *replay, *force),
                cwd=plumb.REPOSITORY,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=plumb.environment() | {"TMPDIR": str(self._temporary)},
            )

    def _check(self, violations: Sequence[Violation]) -> None:
        self._report.checked += 1
        self.found += violations

    def _note(self, text: str) -> None:
        self._timeline.append(f"{time.monotonic() - self._began:7.2f} s  {text}")


if __name__ == "__main__":
    sys.exit(main())
