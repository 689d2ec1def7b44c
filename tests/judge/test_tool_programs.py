"""Programs of tools in the real sandbox."""

import pytest

from services.judge.permits import SandboxPool
from services.judge.sandbox import SandboxClient
from services.judge.tool_programs import ProgramRefusedError, run_program
from shared.config import SandboxConfig
from shared.errors import ServiceError
from shared.ledger import connect_async
from shared.ledger.pipelined import PipelinedRedis
from shared.programs import Program, ProgramResult
from tests.conftest import RedisServer
from tests.sandbox.conftest import needs_cpp


async def run(redis_server: RedisServer, program: Program, url: str) -> ProgramResult:
    async with await connect_async(redis_server.url) as redis:
        pool = SandboxPool(PipelinedRedis(redis), [url], "w", max_concurrency=1)
        try:
            async with SandboxClient(pool, max_attempts=1, retry_budget=0.1) as sandbox:
                return await run_program(program, SandboxConfig(), sandbox)
        finally:
            await pool.close()


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
    sandbox_url: str,
    program: Program,
    status: str,
    stdout: str,
    stderr: str,
    exit_code: int | None,
) -> None:
    result = await run(redis_server, program, sandbox_url)
    assert (result.status, result.stdout, result.exit_code) == (status, stdout, exit_code)
    assert stderr in result.stderr
    assert 0 < result.seconds < 30
    assert not result.truncated


async def test_a_sandbox_that_is_away_is_no_output(redis_server: RedisServer) -> None:
    with pytest.raises(ServiceError) as caught:
        await run(redis_server, Program(code="1"), "http://127.0.0.1:9")
    assert not isinstance(caught.value, ProgramRefusedError)
    assert str(caught.value)


async def test_a_language_that_is_not_installed_is_no_output(
    redis_server: RedisServer, sandbox_url: str
) -> None:
    with pytest.raises(ServiceError, match="does not run 'lean'"):
        await run(redis_server, Program(code="1", language="lean"), sandbox_url)
