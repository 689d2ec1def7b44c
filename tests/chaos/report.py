"""Rounds of faults one after the other, what was found in each, and totals over all of them."""

import argparse
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from pathlib import Path

from tests.chaos.invariants import Violation
from tests.chaos.schedule import SIGNALS, Kind


class Report:
    """Totals over all rounds.

    Args:
        kinds: All kinds of faults.
        aimed: Those of them that have a victim; they are the columns of the table.
    """

    def __init__(
        self, kinds: Collection[StrEnum] = Kind, aimed: Collection[StrEnum] = SIGNALS
    ) -> None:
        self.made: Counter[tuple[str, str]] = Counter()
        self.rounds = self.sessions = self.checked = self.verdicts = self.rewards = 0
        self.violations: list[Violation] = []
        self.began = time.monotonic()
        self._kinds, self._aimed = kinds, aimed

    def tell(self) -> None:
        names = sorted({victim for kind, victim in self.made if kind in self._aimed})
        print(f"\n{'signals':14}" + "".join(f"{kind:>12}" for kind in self._aimed))
        for name in names:
            print(f"{name:14}" + "".join(f"{self.made[kind, name]:>12}" for kind in self._aimed))
        totals = Counter[str]()
        for (kind, _), number in self.made.items():
            totals[kind] += number
        print(f"{'all':14}" + "".join(f"{totals[kind]:>12}" for kind in self._aimed))
        others = {kind: totals[kind] for kind in self._kinds if kind not in self._aimed}
        print("others:", ", ".join(f"{kind} {number}" for kind, number in others.items()))
        minutes = (time.monotonic() - self.began) / 60
        print(
            f"{self.rounds} rounds, {self.sessions} sessions, {self.verdicts} verdicts and "
            f"{self.rewards} rewards in "
            f"{minutes:.1f} minutes; invariants checked {self.checked} times"
        )
        found = Counter(violation.invariant.name.lower() for violation in self.violations)
        shown = {"lost": 0, "doubled": 0, "changed": 0} | found
        print(", ".join(f"{number} {name}" for name, number in shown.items()), flush=True)


class Findings:
    """Violations that a round has found, and its timeline."""

    def __init__(self, seed: int, report: Report) -> None:
        self.found: list[Violation] = []
        self._seed, self._report = seed, report
        self._timeline: list[str] = []
        self._began = time.monotonic()

    def tell(self, again: str) -> None:
        """Print what was found, with the timeline that led to it."""
        print(f"\nround with seed {self._seed}; again: make chaos ARGS='{again}'")
        print("\n".join(self._timeline))
        print("\n".join(str(violation) for violation in self.found), flush=True)

    def _check(self, found: Sequence[Violation]) -> None:
        self._report.checked += 1
        self.found += found

    def _note(self, text: str) -> None:
        self._timeline.append(f"{self._seconds():7.2f} s  {text}")

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def play(
    options: argparse.Namespace,
    report: Report,
    play_round: Callable[[int], tuple[Findings, Sequence[Path]]],
    again: Callable[[int], str],
) -> int:
    """Play rounds with one seed after the other, until the time or the rounds are used up.

    Args:
        play_round: Plays a round; it returns what it found, and the folders to keep if that is
            something.
        again: The arguments that draw a round's faults once more.

    Returns:
        The exit code.
    """
    ends = time.monotonic() + 60 * options.minutes
    try:
        for seed in range(options.seed, options.seed + options.rounds):
            if options.minutes and time.monotonic() > ends:
                break
            one, places = play_round(seed)
            if one.found:
                one.tell(again(seed))
                kept = Path(options.keep) / f"round-{seed}-{os.getpid()}"
                for path in filter(Path.exists, places):
                    shutil.copytree(path, kept, dirs_exist_ok=True)
                print(f"its folder is kept: {kept}", flush=True)
            shutil.rmtree(places[0], ignore_errors=True)
    finally:
        report.tell()
    return 1 if report.violations else 0
