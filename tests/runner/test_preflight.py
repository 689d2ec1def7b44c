import json
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from services.runner.preflight import Needs, check_judging, needs_of
from services.runner.sandboxes import check_needs, check_sandboxes
from shared.config import load_config
from shared.errors import ConfigError, DataError, ServiceError
from shared.function_plan import failed_imports, import_program
from shared.service.access import authorization
from tests.runner.generators import Servers
from tests.shared.ledgers import problem

Start = Callable[..., Awaitable[str]]


@pytest.fixture
async def start(servers: Servers) -> Start:
    async def start(text: str, status: int = 200) -> str:
        async def answer(_request: web.Request) -> web.Response:
            return web.Response(text=text, status=status)

        app = web.Application()
        app.router.add_get("/v1/ping", answer)
        app.router.add_post("/run_code", answer)
        return await servers.serve(app)

    return start


async def test_sandboxes_that_answer(start: Start) -> None:
    one, two = await start('"pong"'), await start("pong")
    await check_sandboxes([one, f"{two}/run_code", f"{two}/"])


async def test_a_token_does_not_follow_a_redirect(servers: Servers) -> None:
    """Neither the sandbox's nor the generator's."""
    sent: list[str | None] = []

    async def record(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Authorization"))
        return web.json_response({})

    async def redirect(request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(elsewhere + request.path)

    elsewhere = await servers.stand_in(models=record, ping=record)
    url = await servers.stand_in(models=redirect, ping=redirect)
    with pytest.raises(ServiceError, match="not a SandboxFusion server"):
        await check_sandboxes([url], headers=authorization("s3cret"))
    with pytest.raises(ServiceError, match="does not speak the OpenAI API"):
        await (await servers.client(url, api_key="s3cret")).check()
    assert sent == [None, None]


# Languages

TRANSLATED = json.dumps({"language": "java", "prompt": "f(", "program_tests": "}"})
STDIO = json.dumps({"inputs": ["1"], "outputs": ["1"]})
MBPP = json.dumps({"test_list": ["assert 1"]})


def test_the_languages_that_a_run_needs() -> None:
    problems = [
        problem("1", dataset="a", ground_truth=STDIO),
        problem("2", dataset="b", ground_truth=STDIO),
        problem("3", dataset="c", ground_truth=TRANSLATED),
        problem("4", dataset="a", ground_truth=MBPP),
    ]
    config = load_config(None, ["judge.datasets={b: {language: cpp}}"])
    assert needs_of(config, problems).languages == ["cpp", "java"]
    assert needs_of(config, problems[:1]).languages == []
    everything = load_config(None, ["judge.language=cpp"])
    assert needs_of(everything, problems[3:]).languages == []


def answered(status: str, stderr: str = "", message: str = "") -> str:
    compiled = {"status": "Finished", "stderr": stderr}
    return json.dumps({"status": status, "message": message, "compile_result": compiled})


async def test_sandboxes_with_the_toolchains(start: Start) -> None:
    url = await start(answered("Success"))
    await check_needs([url, f"{url}/run_code"], Needs(["cpp", "java"]))
    await check_needs([await start("queue full", 503)], Needs(["cpp"]))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answered("Failed", "bash: line 1: javac: command not found"), "javac: command not found"),
        (answered("SandboxError", message="this server does not run 'java'"), "does not run"),
        (answered("Failed"), "Failed"),
        ("<html>", "does not answer as a SandboxFusion server"),
    ],
)
async def test_a_sandbox_without_a_toolchain(start: Start, answer: str, words: str) -> None:
    good, bad = await start(answered("Success")), await start(answer)
    with pytest.raises(ConfigError, match="cannot run java") as caught:
        await check_needs([good, bad], Needs(["java"]))
    assert str(caught.value).startswith(bad)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("method", ["submit", "compute_score"])
def test_tests_in_other_languages_need_the_method_batch(method: str) -> None:
    given = problem(ground_truth=TRANSLATED)
    with pytest.raises(DataError, match="cannot judge tests in java; use batch"):
        check_judging(load_config(None, [f"judge.method={method}"]), [given])
    check_judging(load_config(None), [given])


# Tests that cannot run

BROKEN_TESTS = {
    "line 1: ": {"test_list": ["assert f( == 1"]},
    "undefined names: EXPECTED": {"test_list": ["assert f() == EXPECTED"]},
    "no function check": {"test": "def tests(f): pass", "entry_point": "f", "prompt": "def f():"},
    "undefined names: helper": {
        "test": "def check(f): assert f() == helper()", "entry_point": "f", "prompt": "def f():",
    },
    "call 0: not JSON": {"fn_name": "f", "inputs": ["1 2"], "outputs": ["3"]},
    "call 1: not JSON": {
        "fn_name": "f", "inputs": ["1"] * 2, "outputs": ["3", "x"], "convention": "livecodebench",
    },
}  # fmt: skip


@pytest.mark.parametrize("reason", BROKEN_TESTS)
def test_tests_that_cannot_run(reason: str) -> None:
    given = problem("7", dataset="a", ground_truth=json.dumps(BROKEN_TESTS[reason]))
    with pytest.raises(DataError) as caught:
        check_judging(load_config(None), [given])
    assert str(caught.value).startswith("a: problem '7': its tests cannot run: ")
    assert reason in str(caught.value)
    check_judging(load_config(None, ["judge.allow_test_errors=true"]), [given])


IMPORTS = json.dumps({"test_list": ["import no_such_module\nassert f()", "import math"]})


async def test_modules_that_a_sandbox_lacks(start: Start) -> None:
    given = problem("7", dataset="a", ground_truth=IMPORTS)
    needs = needs_of(load_config(None), [given])
    assert sorted(needs.imports) == ["import math", "import no_such_module"]
    lacks = {"import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'"}
    answer = {
        "status": "Success",
        "run_result": {"status": "Finished", "stdout": f"\n{json.dumps(lacks)}\n"},
    }
    url = await start(json.dumps(answer))
    with pytest.raises(ConfigError, match="its tests cannot run in the sandbox at") as caught:
        await check_needs([url], needs)
    assert str(caught.value).startswith("a: problem '7': ")
    assert "No module named 'no_such_module'" in str(caught.value)
    assert not needs_of(load_config(None, ["judge.allow_test_errors=true"]), [given])
    await check_needs([await start("queue full", 503)], needs)


def tried(program: str) -> dict[str, str]:
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, stdin=subprocess.DEVNULL
    )
    failed = failed_imports(run.stdout)
    assert failed is not None
    return dict(failed)


def test_imports_are_tried() -> None:
    statements = ["import math", "import no_such_module", "from math import no_such_name"]
    assert set(tried(import_program(statements))) == set(statements[1:])
    assert failed_imports(b"") is None
