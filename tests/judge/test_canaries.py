"""Canaries on the real sandbox, healthy and with faults, and their rounds beside samples."""

import asyncio
import time
from collections.abc import Mapping

import pytest
from redis import Redis

from services.aggregator.publish import publish
from services.judge import canaries as rounds
from services.judge.canaries import CanaryProfile, judge_canaries
from services.judge.sandbox import SandboxClient
from shared.canaries import CanaryReport
from shared.config import load_config
from shared.harness import languages
from shared.ledger import CanaryLedger, Ledger
from shared.ledger.keys import RunKeys
from shared.run_record import RunState, make_plan
from tests.conftest import RedisServer
from tests.judge import faulty_sandbox as faults
from tests.judge.faulty_sandbox import Body, Fault, faulty
from tests.judge.language_programs import is_installed
from tests.judge.pools import OpenPool
from tests.judge.tasks import together
from tests.judge.workers import Worker
from tests.shared.ledgers import RUN, enter, generation, problem
from tests.waiting import eventually

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
    "CRLF normalized": (faults.NORMALIZED_NEWLINES, "byte by byte"),
    "not ASCII replaced": (faults.REPLACED_CHARACTERS, "byte by byte"),
    "streams merged": (faults.MERGED_STREAMS, "a right program"),
    "exit code lost": (faults.LOST_EXIT_CODES, "an exit code is lost"),
    "signal lost": (faults.lost_signals, "a signal is lost"),
    "input cut at 64 KiB": (faults.cut_input, "input is cut"),
    "no processes": (faults.NO_FORK, "threads, processes and a shell"),
    "an older Python": (faults.OLD_PYTHON, "a right program"),
    "remembered by program": (faults.remember_by("code"), "a right program"),
    "remembered by input": (faults.remember_by("inputs"), "a wrong output"),
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


# Rounds


PROBLEMS = [problem(f"p{n}") for n in range(3)]
PLAN = make_plan(PROBLEMS, lambda _problem: range(1))
KEY = RunKeys(RUN).canaries


@pytest.fixture
def ledger(redis: Redis, tmp_path) -> Ledger:
    ledger = Ledger(redis, RUN)
    enter(ledger, PROBLEMS, PLAN, output=str(tmp_path), name="n", fingerprint="f")
    for sample in PLAN.samples():
        ledger.record(generation(sample, "```python\nprint(input())\n```"))
    return ledger


async def judge_all(redis_server: RedisServer, *urls: str) -> Worker:
    canaries = CanaryLedger(Redis.from_url(redis_server.url), RUN)
    async with Worker(redis_server.url, "w", sandbox_urls=",".join(urls)) as worker:
        await worker.judge_all()
        await eventually(lambda: not canaries.outstanding())
        assert worker.errors == []
    return worker


def names(redis: Redis) -> set[str]:
    """The names of the rounds that were begun, of any sandbox."""
    return {field.decode().partition(" programs ")[2] for field in redis.hkeys(KEY)}


async def test_every_sandbox_gets_a_round_beside_the_samples(
    ledger: Ledger,
    redis: Redis,
    redis_server: RedisServer,
    sandbox_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_SHORT", 1000.0)  # however slow the machine is
    async with faulty(sandbox_url, faults.NO_MEMORY_LIMIT) as other:
        worker = await judge_all(redis_server, sandbox_url, other)
    record = CanaryLedger(redis, RUN).record()
    assert {sandbox.sandbox for sandbox in record.sandboxes} == {sandbox_url, other}, redis.hgetall(
        KEY
    )
    assert [sandbox.sent for sandbox in record.sandboxes] == [4, 4]
    lines = record.distrust  # on a busy machine a program may be late besides
    fault = f"sandbox {other}: memory limit not enforced: 1190 MiB allocated"
    assert any(line.startswith(fault) for line in lines), lines
    assert all(line.startswith(f"sandbox {other}: ") for line in lines), lines
    assert not record.trusted
    # Nothing of it is in the run's own numbers, nor in those of the process.
    assert ledger.judged() == set(PLAN.samples())
    assert redis.hget(RunKeys(RUN).meta, "verdicts_written") == b"3"
    assert redis.xlen(RunKeys(RUN).events) == 3
    assert worker.metrics.judged == 3
    assert worker.metrics.failure() in lines
    counted = worker.metrics.registry.get_sample_value
    labels = {"sandbox": other, "outcome": "wrong"}
    assert counted("plumbline_judge_canaries_total", labels) >= 1
    assert counted("plumbline_judge_samples_total", {"status": "success"}) == 3
    ledger.set_state(RunState.JUDGED)
    assert publish(ledger) is RunState.UNTRUSTED
    ledger.delete()
    assert not redis.exists(KEY)


async def test_a_session_ends_with_another_round(
    ledger: Ledger,
    redis: Redis,
    redis_server: RedisServer,
    sandbox_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_SHORT", 0.0)
    both = {"first 1", "last 1"}
    for _ in range(2):  # the other judge finds both rounds begun
        await judge_all(redis_server, sandbox_url)
        assert names(redis) == both
        for one in ledger.completed().items():
            ledger.rejudge([one])  # jobs of their own, one after the other
    enter(ledger, PROBLEMS, PLAN)
    await judge_all(redis_server, sandbox_url)
    assert names(redis) == both | {"first 2", "last 2"}
    assert CanaryLedger(redis, RUN).record().trusted


async def test_a_session_without_an_end_has_rounds_by_the_clock(
    ledger: Ledger,
    redis: Redis,
    redis_server: RedisServer,
    sandbox_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_SHORT", 0.0)
    redis.hdel(RunKeys(RUN).meta, "planned")
    await judge_all(redis_server, sandbox_url)
    begun = names(redis)
    assert "first 1" in begun and len(begun) > 1
    assert all(int(name) * 600 <= time.time() for name in begun - {"first 1"})
    canaries = CanaryLedger(redis, RUN)
    canaries.forget(keep=1)
    (left,) = canaries.record().sandboxes
    assert left.sent == 4 and "first 1" not in names(redis)


async def test_a_sandbox_that_is_away_is_not_wrong(redis: Redis, redis_server: RedisServer) -> None:
    ledger = Ledger(redis, RUN)
    config = {"judge": {"retry_budget": 0.1, "max_attempts": 1}}
    enter(ledger, PROBLEMS, PLAN, config=config)
    ledger.record(generation(PLAN.samples()[0], "```python\nprint(input())\n```"))
    worker = await judge_all(redis_server, "http://127.0.0.1:9")
    record = CanaryLedger(redis, RUN).record()
    (found,) = record.sandboxes
    assert record.trusted
    assert (found.right, found.wrong, found.unjudged) == (0, 0, 4)
    assert worker.metrics.failure() is None


async def test_a_judge_that_stops_leaves_its_round_to_others(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    stopped = asyncio.Event()

    async def slow(call: faults.Call, send: faults.Send) -> faults.Body:
        if call.body.get("inputs") != ["1\n"]:  # a canary's
            await stopped.wait()
        return await send(call.body)

    async with faulty(sandbox_url, slow) as url:
        async with Worker(redis_server.url, "w", sandbox_urls=url) as worker:
            await worker.judge_all()
            assert CanaryLedger(redis, RUN).outstanding() == 1
        stopped.set()
    assert not redis.exists(KEY)
