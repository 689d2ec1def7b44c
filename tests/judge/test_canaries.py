"""Canaries on the real sandbox, healthy and with faults."""

import asyncio
from collections.abc import Mapping

import pytest

from services.judge.canaries import CanaryProfile, judge_canaries
from services.judge.sandbox import SandboxClient
from shared.canaries import CanaryReport
from shared.config import load_config
from shared.harness import languages
from tests.judge import faulty_sandbox as faults
from tests.judge.faulty_sandbox import Body, Fault, faulty, of_results
from tests.judge.language_programs import is_installed
from tests.judge.pools import OpenPool
from tests.judge.tasks import together

PROGRAMS = CanaryProfile("batch", "python", functions=False)
FUNCTIONS = CanaryProfile("batch", "python", functions=True)
PROFILES = [
    CanaryProfile(method, "python", functions)
    for method in ("batch", "compute_score", "submit")
    for functions in (False, True)
]
CPP = CanaryProfile("batch", "cpp", functions=False)
FAULTS: dict[str, tuple[Fault, str]] = {
    "memory limit ignored": (faults.NO_MEMORY_LIMIT, "memory limit not enforced"),
    "memory limit halved": (faults.HALF_MEMORY, "memory is refused"),
    "time limit ignored": (faults.NO_TIME_LIMIT, "time limit not enforced"),
    "time counted twice": (faults.slow_clock, "time is miscounted"),
    "waiting counted": (faults.WALL_TIME, "waiting is counted as work"),
    "output limit ignored": (faults.NO_OUTPUT_LIMIT, "output limit not enforced"),
    "output limit halved": (faults.HALF_OUTPUT, "output is cut or refused"),
    "CRLF normalized": (of_results(faults.normalize_newlines), "byte by byte"),
    "not ASCII replaced": (of_results(faults.replace_invalid), "byte by byte"),
    "streams merged": (of_results(faults.merge_streams), "a right program"),
    "exit code lost": (of_results(faults.lose_exit_code), "an exit code is lost"),
    "signal lost": (of_results(faults.lose_signals), "a signal is lost"),
    "input cut at 64 KiB": (faults.cut_input, "input is cut"),
    "no processes": (faults.NO_FORK, "threads, processes and a shell"),
    "an older Python": (faults.OLD_PYTHON, "a right program"),
    "remembered by program": (faults.remember_by_code, "a right program"),
    "remembered by input": (faults.remember_by_input, "a wrong output"),
    "shared /tmp": (faults.shared_folder, "a right program"),
}


async def round_on(url: str, profile: CanaryProfile = PROGRAMS, *settings: str) -> CanaryReport:
    async with SandboxClient(OpenPool([url]), max_attempts=2, retry_budget=30) as client:
        config = load_config(None, settings)
        return await judge_canaries(profile, config, client.pinned(url), url)


async def test_a_healthy_sandbox_judges_all_canaries_as_it_must(sandbox_url: str) -> None:
    installed = [name for name in languages.PROGRAMS if name != "python" and is_installed(name)]
    others = [CanaryProfile("batch", name, functions=False) for name in installed]
    reports = await together(
        (*PROFILES, *others), lambda profile: round_on(sandbox_url, profile), at_a_time=3
    )
    for profile, report in reports.items():
        assert (report.wrong, report.unjudged, report.unable) == ([], [], []), profile
        assert report.right == report.sent > 0, profile


@pytest.fixture(scope="module")
def answers() -> dict[str, Body]:
    """The real sandbox's answers: calls that a fault does not change are made once."""
    return {}


async def not_found(
    url: str,
    faults_with_texts: Mapping[str, tuple[Fault, str]],
    profile: CanaryProfile,
    answers: dict[str, Body],
) -> dict[str, CanaryReport]:
    """Return the reports on the faults that the canaries of a profile do not find."""
    async with faulty(url, faults.healthy, answers=answers) as proxy:
        report = await round_on(proxy, profile)
        assert (report.wrong, report.unjudged) == ([], [])
    slots = asyncio.Semaphore(4)

    async def judge(fault: Fault) -> CanaryReport:
        async with slots, faulty(url, fault, answers=answers) as proxy:
            return await round_on(proxy, profile)

    reports = await asyncio.gather(*(judge(fault) for fault, _ in faults_with_texts.values()))
    return {
        name: report
        for (name, (_, text)), report in zip(faults_with_texts.items(), reports, strict=True)
        if not any(text in finding.text for finding in report.wrong)
    }


async def test_faults_are_found(sandbox_url: str, answers: dict[str, Body]) -> None:
    assert await not_found(sandbox_url, FAULTS, PROGRAMS, answers) == {}


FUNCTION_FAULTS: dict[str, tuple[Fault, str]] = {
    "memory limit ignored": (faults.NO_MEMORY_LIMIT, "memory limit not enforced"),
    "time limit ignored": (faults.NO_TIME_LIMIT, "time limit not enforced"),
    "time limit halved": (faults.HALF_TIME, "time is miscounted"),
    "time counted twice": (faults.slow_clock, "time is miscounted"),
    "output lost": (faults.cut_output(0), "right"),
}


async def test_faults_in_function_tests_are_found(
    sandbox_url: str, answers: dict[str, Body]
) -> None:
    assert await not_found(sandbox_url, FUNCTION_FAULTS, FUNCTIONS, answers) == {}


async def test_a_sandbox_with_nothing_but_run_code_is_judged_too(sandbox_url: str) -> None:
    async with faulty(sandbox_url, faults.healthy, cases=False) as url:
        report = await round_on(url)
        assert (report.wrong, report.unjudged) == ([], [])
    async with faulty(sandbox_url, faults.OLD_PYTHON, cases=False) as url:
        assert (await round_on(url)).unjudged == []


async def test_a_sandbox_without_a_compiler_is_not_wrong(sandbox_url: str) -> None:
    async def no_compiler(call: faults.Call, _send: faults.Send) -> faults.Body:
        return {"compiled": "missing", "compile_output": "g++: not found"}

    async with faulty(sandbox_url, no_compiler) as url:
        report = await round_on(url, CPP)
    assert (report.wrong, report.unjudged) == ([], [])
    assert len(report.unable) == report.sent
    assert "g++" in report.unable[0].text


async def test_the_limits_of_a_run_do_not_decide(sandbox_url: str) -> None:
    settings = (
        *("sandbox.memory_limit_mb=64", "sandbox.timeout=0.1", "judge.max_processes=1"),
        *("judge.max_timeouts=1", "judge.confirm_timeouts=false", "judge.wall_factor=1"),
        *("judge.checker=lines", "judge.cpu_grace=1"),
    )
    for profile in (PROGRAMS, FUNCTIONS):
        report = await round_on(sandbox_url, profile, *settings)
        assert (report.wrong, report.unjudged) == ([], [])
