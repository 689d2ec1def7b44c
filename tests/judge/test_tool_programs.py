"""Programs of tools: run by the real worker in the real sandbox, answered exactly once."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from redis import Redis
from sandbox_fusion.models import CommandRunResult, RunCodeResponse

from services.judge.tool_programs import answer_of
from shared.config import Config
from shared.ledger import connect_async, job_id, keys
from shared.ledger.calls import READ_FIELDS, Flaw, JobCall, RefusedJobError
from shared.ledger.jobs import WorkerJobs
from shared.ledger.pipelined import PipelinedRedis
from shared.ledger.programs import ProgramLedger, SentProgram
from shared.programs import MAX_OUTPUT, Program, ProgramAnswer, ProgramRequest, ProgramStatus
from shared.schemas import SampleId
from tests.conftest import RedisServer
from tests.judge.test_crafted_jobs import call as data
from tests.judge.workers import Worker
from tests.sandbox.conftest import needs_cpp


@pytest.fixture
async def ledger(redis: Redis, redis_server: RedisServer) -> AsyncIterator[ProgramLedger]:
    client = await connect_async(redis_server.url)
    yield ProgramLedger(client, PipelinedRedis(client))
    await client.aclose()


def config(url: str) -> str:
    given = Config.model_validate({"sandbox": {"url": url}, "judge": {"max_attempts": 1}})
    return given.for_services().model_dump_json()


def packed(ledger: ProgramLedger, program: Program, url: str) -> SentProgram:
    return SentProgram.of(ledger.run, ProgramRequest(program=program, config=config(url)))


async def run(
    redis_server: RedisServer, ledger: ProgramLedger, program: Program, url: str
) -> ProgramAnswer:
    sent = packed(ledger, program, url)
    await ledger.send(sent, 60)
    async with Worker(redis_server.url, "w") as worker:
        await worker.judge_all()
        assert worker.errors == []
    answers = await ledger.answers("0", 5)
    assert list(answers.found) == [sent.id]
    await ledger.forget(answers)
    answer = answers.found[sent.id]
    assert answer is not None
    return answer


BASH = "read x; echo $x; exit 3"
ENDLESS = "print('a', flush=True)\nwhile True: pass"
CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"


@pytest.mark.parametrize(
    ("program", "status", "stdout", "stderr", "exit_code"),
    [
        (Program(code="print(input())", stdin="hé"), "ok", "hé\n", "", 0),
        pytest.param(
            Program(code=CPP, stdin="1 2", language="cpp"), "ok", "3", "", 0, marks=needs_cpp
        ),
        (Program(code=BASH, stdin="7\n", language="bash"), "error", "7\n", "", 3),
        (Program(code="1 / 0"), "error", "", "ZeroDivisionError", 1),
        (Program(code="import os; os.abort()"), "error", "", "", -6),
        (Program(code=ENDLESS, timeout=1), "timeout", "a\n", "", None),
        (Program(code="x = 'a' * 10**9", memory_limit_mb=100), "memory", "", "MemoryError", 1),
        pytest.param(
            Program(code="int main() {", language="cpp"),
            "compile_error",
            "",
            "expected",
            None,
            marks=needs_cpp,
        ),
    ],
)
async def test_what_a_program_did(
    redis_server: RedisServer,
    ledger: ProgramLedger,
    redis: Redis,
    sandbox_url: str,
    program: Program,
    status: str,
    stdout: str,
    stderr: str,
    exit_code: int | None,
) -> None:
    answer = await run(redis_server, ledger, program, sandbox_url)
    result = answer.result
    assert result is not None, answer
    assert (result.status, result.stdout, result.exit_code) == (status, stdout, exit_code)
    assert stderr in result.stderr
    assert 0 < result.seconds < 30
    assert not result.truncated
    assert left(redis) == []


def left(redis: Redis) -> list[bytes]:
    """Keys of programs and of their jobs; an empty stream counts as nothing."""
    found = [*redis.keys("plumbline:programs:*"), *redis.keys("rq:job:*"), *redis.keys("*:lease:*")]
    return [key for key in found if redis.type(key) != b"stream" or redis.xlen(key)]


async def test_long_outputs_are_cut(
    redis_server: RedisServer, ledger: ProgramLedger, sandbox_url: str
) -> None:
    program = Program(code="import sys\nprint('aé' * 10**5)\nsys.stderr.write('short')")
    result = (await run(redis_server, ledger, program, sandbox_url)).result
    assert result is not None
    assert result.truncated
    assert len(result.stdout.encode()) in (MAX_OUTPUT, MAX_OUTPUT - 1)
    assert result.stdout.startswith("aéaé")
    assert result.stderr == "short"


async def test_a_sandbox_that_is_away_is_no_output(
    redis_server: RedisServer, ledger: ProgramLedger
) -> None:
    given = Config.model_validate(
        {"sandbox": {"url": "http://127.0.0.1:9"}, "judge": {"retry_budget": 0.1}}
    )
    request = ProgramRequest(
        program=Program(code="print(1)"), config=given.for_services().model_dump_json()
    )
    sent = SentProgram.of(ledger.run, request)
    await ledger.send(sent, 60)
    async with Worker(redis_server.url, "w") as worker:
        await worker.judge_all()
    answer = (await ledger.answers("0", 5)).found[sent.id]
    assert answer is not None
    assert answer.result is None
    assert not answer.refused
    assert (answer.failure or "").startswith("Client")


async def test_a_language_that_is_not_installed_is_no_output(
    redis_server: RedisServer, ledger: ProgramLedger, sandbox_url: str
) -> None:
    answer = await run(redis_server, ledger, Program(code="1", language="lean"), sandbox_url)
    assert answer.result is None
    assert "does not run 'lean'" in (answer.failure or "")


def failed(**results: CommandRunResult) -> RunCodeResponse:
    return RunCodeResponse(status="Failed", message="", **results)


@pytest.mark.parametrize(
    "response",
    [
        RunCodeResponse(message="", status="Success"),
        failed(run_result=CommandRunResult(status="Finished")),
        failed(run_result=CommandRunResult(status="Error", return_code=0)),
        failed(compile_result=CommandRunResult(status="Error")),
    ],
)
def test_responses_that_say_nothing_about_the_program(response: RunCodeResponse) -> None:
    answer = answer_of(response)
    assert answer.result is None
    assert (answer.failure or "").startswith("unusable answer")


def test_a_compiler_that_takes_too_long() -> None:
    late = CommandRunResult(status="TimeLimitExceeded", execution_time=5.0)
    answer = answer_of(failed(compile_result=late))
    assert answer.result is not None
    assert answer.result.status is ProgramStatus.COMPILE_ERROR


# Exactly once


async def test_two_judges_with_the_same_program_answer_once(
    redis_server: RedisServer, ledger: ProgramLedger, redis: Redis
) -> None:
    sent = packed(ledger, Program(code=""), "http://127.0.0.1:9")
    await ledger.send(sent, 60)
    client = await connect_async(redis_server.url)
    commands = PipelinedRedis(client)
    first, second = (WorkerJobs(commands, name, lease_ttl=30) for name in ("a", "b"))
    (one,) = (await first.take(1, idle=True)).jobs
    await ledger.send(sent, 60, losses=1)  # as if its judge were lost
    (other,) = (await second.take(1, idle=True)).jobs
    assert other.suspect
    call = JobCall.parse(one.id, one.values)
    assert await first.read_program(call) == await second.read_program(call) is not None
    assert await second.answer(other, call, ProgramAnswer(failure="second"), 1.0)
    assert not await first.answer(one, call, ProgramAnswer(failure="first"), 1.0)
    answers = await ledger.answers("0", 1)
    assert [one.failure for one in answers.found.values() if one] == ["second"]
    assert 0 < redis.ttl(keys.ProgramKeys(ledger.run).results) <= 600
    await ledger.forget(answers)
    assert left(redis) == []
    await client.aclose()


async def test_a_command_that_is_repeated_sends_once(ledger: ProgramLedger, redis: Redis) -> None:
    sent = packed(ledger, Program(code=""), "http://127.0.0.1:9")
    await ledger.send(sent, 60)
    await ledger.send(sent, 60)
    assert redis.llen("rq:queue:judge") == 1


async def test_a_cancelled_program_is_not_run(
    redis_server: RedisServer, ledger: ProgramLedger, redis: Redis
) -> None:
    waiting, taken = (packed(ledger, Program(code=""), "http://127.0.0.1:9") for _ in range(2))
    await ledger.send(taken, 60)
    client = await connect_async(redis_server.url)
    jobs = WorkerJobs(PipelinedRedis(client), "w", lease_ttl=30)
    (job,) = (await jobs.take(1, idle=True)).jobs
    await ledger.send(waiting, 60)
    await ledger.cancel(waiting)
    await ledger.cancel(taken)
    assert redis.llen("rq:queue:judge") == 0
    call = JobCall.parse(job.id, job.values)
    assert await jobs.read_program(call) is None
    await jobs.answer(job, call, None, 0.0)
    assert (await ledger.answers("0", 0.01)).found == {}
    assert left(redis) == []
    await client.aclose()


async def test_a_request_expires(ledger: ProgramLedger, redis: Redis) -> None:
    sent = packed(ledger, Program(code=""), "http://127.0.0.1:9")
    await ledger.send(sent, 0.05)
    end = time.monotonic() + 60
    while redis.keys("plumbline:programs:*"):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_another_content_than_the_job_names_is_not_run(
    redis_server: RedisServer, ledger: ProgramLedger, redis: Redis
) -> None:
    sent = packed(ledger, Program(code="print(1)"), "http://127.0.0.1:9")
    other = packed(ledger, Program(code="print(2)"), "http://127.0.0.1:9")
    await ledger.send(sent, 60)
    redis.set(keys.ProgramKeys(ledger.run).request(sent.id), other.packed)
    async with Worker(redis_server.url, "w") as worker:
        await worker.judge_all()
        assert worker.errors == []
    assert (await ledger.answers("0", 0.01)).found == {}


@pytest.mark.parametrize("run", ["programs/1", "programs/", f"programs/{'A' * 16}", "x/programs"])
def test_other_runs_with_a_slash_are_refused(run: str) -> None:

    sample = SampleId("tool", "x")
    arguments = (run, sample.key, "0" * 64)
    values = [data(arguments=arguments), None, b"judge", b"-1", b"0", None]

    padded = [*values, *([None] * (len(READ_FIELDS) - len(values)))]
    with pytest.raises(RefusedJobError) as caught:
        JobCall.parse(job_id(run, sample, "0" * 64), padded)
    assert caught.value.flaw is Flaw.CALL
