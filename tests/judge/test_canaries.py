"""Canaries on the real sandbox, healthy and with faults."""

import pytest

from services.judge.canaries import CanaryRound, judge_round
from services.judge.sandbox import SandboxClient
from shared.canaries.profile import CanaryProfile
from shared.canaries.record import CanaryReport
from shared.config import load_config
from tests.judge import faulty_sandbox as faults
from tests.judge.faulty_sandbox import Fault, faulty, of_results
from tests.judge.pools import OpenPool

PROGRAMS = CanaryProfile("batch", "python", functions=False)
FUNCTIONS = CanaryProfile("batch", "python", functions=True)
PROFILES = [
    CanaryProfile(method, "python", functions)
    for method in ("batch", "compute_score", "submit")
    for functions in (False, True)
]
FAULTS: dict[str, tuple[Fault, str]] = {
    "memory limit ignored": (faults.NO_MEMORY_LIMIT, "memory limit not enforced"),
    "memory limit doubled": (faults.DOUBLE_MEMORY, "memory limit not enforced"),
    "memory limit halved": (faults.HALF_MEMORY, "memory is refused"),
    "time limit ignored": (faults.NO_TIME_LIMIT, "time limit not enforced"),
    "time limit halved": (faults.HALF_TIME, "time is miscounted"),
    "time counted twice": (faults.slow_clock, "time is miscounted"),
    "waiting counted": (faults.WALL_TIME, "waiting is counted as work"),
    "output limit ignored": (faults.NO_OUTPUT_LIMIT, "output limit not enforced"),
    "output limit halved": (faults.HALF_OUTPUT, "output is cut or refused"),
    "output cut at 64 KiB": (faults.cut_output(65536), "output is cut or refused"),
    "output cut at 1 MB": (faults.cut_output(1_000_000), "output is cut or refused"),
    "last newline stripped": (of_results(faults.strip_newline), "byte by byte"),
    "CRLF normalized": (of_results(faults.normalize_newlines), "byte by byte"),
    "NUL lost": (of_results(faults.lose_nul), "byte by byte"),
    "not ASCII lost": (of_results(faults.lose_non_ascii), "byte by byte"),
    "not ASCII replaced": (of_results(faults.replace_invalid), "byte by byte"),
    "streams merged": (of_results(faults.merge_streams), "a right program"),
    "always success": (of_results(faults.always_succeed), "an exit code is lost"),
    "always failure": (of_results(faults.always_fail), "a right program"),
    "exit code lost": (of_results(faults.lose_exit_code), "an exit code is lost"),
    "signal lost": (of_results(faults.lose_signals), "a signal is lost"),
    "signal as exit code": (of_results(faults.signal_as_exit_code), "a signal is lost"),
    "input cut at 64 KiB": (faults.cut_input, "input is cut"),
    "input normalized": (faults.unix_input, "byte by byte"),
    "no processes": (faults.NO_FORK, "threads, processes and a shell"),
    "another encoding": (faults.LATIN, "a right program"),
    "an older Python": (faults.OLD_PYTHON, "a right program"),
    "an older library": (faults.NO_SUCH_METHOD, "a right program"),
    "remembered by program": (faults.remember_by_code, "a right program"),
    "shared /tmp": (faults.shared_folder, "a right program"),
}


async def round_on(url: str, profile: CanaryProfile = PROGRAMS, *settings: str) -> CanaryReport:
    async with SandboxClient(OpenPool([url]), max_attempts=2, retry_budget=30) as client:
        config = load_config(None, settings)
        return await judge_round(CanaryRound(url, profile, "seed"), config, client)


@pytest.mark.parametrize("profile", PROFILES, ids=str)
async def test_a_healthy_sandbox_judges_all_canaries_as_it_must(
    sandbox_url: str, profile: CanaryProfile
) -> None:
    report = await round_on(sandbox_url, profile)
    assert (report.wrong, report.unjudged, report.unable) == ([], [], [])
    assert report.right == report.sent > 5


@pytest.mark.parametrize(("fault", "text"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_is_found(sandbox_url: str, fault: Fault, text: str) -> None:
    async with faulty(sandbox_url, fault) as url:
        report = await round_on(url)
    assert any(text in finding.text for finding in report.wrong), report
