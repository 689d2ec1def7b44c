"""Canaries on a healthy sandbox: findings in many rounds, and what a round costs.

``python -m tests.bench.canaries 1000`` judges so many rounds of each profile of ``batch``; any
finding is a false alarm, and makes the exit code 1.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from services.judge.canaries import CanaryRound, judge_round
from services.judge.sandbox import SandboxClient
from shared.canaries.profile import CanaryProfile
from shared.canaries.record import CanaryReport
from shared.config import Config
from tests.judge.pools import OpenPool
from tests.sandboxes import sandbox

PROFILES = ("batch python programs", "batch python functions", "batch cpp programs")


async def judge(url: str, profile: str, rounds: int, concurrency: int) -> list[CanaryReport]:
    """Judge rounds of a profile, a few at once."""
    slots = asyncio.Semaphore(concurrency)
    async with SandboxClient(OpenPool([url]), max_attempts=5, retry_budget=120) as client:

        async def one(number: int) -> CanaryReport:
            async with slots:
                given = CanaryRound(url, CanaryProfile.parse(profile), f"{profile} {number}")
                return await judge_round(given, Config(), client)

        return list(await asyncio.gather(*map(one, range(rounds))))


def show(profile: str, reports: list[CanaryReport], seconds: float) -> int:
    """Print the figures of a profile; return the number of rounds with a finding."""
    sent, right = sum(one.sent for one in reports), sum(one.right for one in reports)
    cost = sum(one.judge_seconds for one in reports) / len(reports)
    print(
        f"{profile}: {len(reports)} rounds in {seconds:.0f} s, {right} of {sent} canaries right, "
        f"{cost:.2f} sandbox seconds a round",
        flush=True,
    )
    for report in reports:
        for finding in (*report.wrong, *report.unjudged, *report.unable):
            print(f"  {finding.canary}: {finding.text}", flush=True)
    return sum(bool(report.wrong) for report in reports)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=100)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--profile", action="append", choices=PROFILES)
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, sandbox(Path(folder)) as url:
        for profile in given.profile or PROFILES:
            began = time.monotonic()
            reports = asyncio.run(judge(url, profile, given.rounds, given.concurrency))
            wrong += show(profile, reports, time.monotonic() - began)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
