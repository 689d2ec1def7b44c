"""Requests that are wrong a million times: small answers, and no effect on programs beside them."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.processes import service_process
from tests.sandbox.conftest import Sandbox, StartSandbox, b64

MILLION = 1_000_000
TOO_MANY = 300_000  # values of one body
MIB = 2**20
# Bytes of an answer to a wrong request.
SMALL = 8192
CONFIG: dict[str, Any] = {"language": "python", "dataset_type": "CommonOJDataset"}
LIMITS = {
    "cpu": 5, "wall": 10, "compile": 10, "budget": 30, "memory": 2**30, "output": MIB,
}  # fmt: skip


def run_code(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "/run_code", {"code": "print(1)", "language": "python", **fields}


def run_cases(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "/run_cases", {"code": "print(1)", "inputs": [""], "limits": LIMITS, **fields}


def submit(**config: Any) -> tuple[str, dict[str, Any]]:
    return "/submit", {"dataset": "x", "id": 1, "completion": "", "config": CONFIG | config}


def prompts(**config: Any) -> tuple[str, dict[str, Any]]:
    return "/get_prompts", {"dataset": "x", "config": CONFIG | config}


Request = tuple[str, dict[str, Any]]


def members(count: int) -> list[int]:
    return [1] * count


def named(count: int) -> dict[str, int]:
    return {f"a{i}": 1 for i in range(count)}


def streams(count: int) -> Request:
    return submit(provided_data={"test": [{"input": named(count), "output": {"stdout": ""}}]})


# Makers of requests with so many wrong members, for each place that takes many.
WRONG: dict[str, Callable[[int], Request]] = {
    "fetch_files": lambda count: run_code(fetch_files=members(count)),
    "files": lambda count: run_code(files=named(count)),
    "inputs": lambda count: run_cases(inputs=members(count)),
    "records": lambda count: prompts(provided_data=members(count)),
    "record": lambda count: submit(provided_data=members(count)),
    "tests": lambda count: submit(provided_data={"test": members(count)}),
    "tests in a string": lambda count: submit(provided_data={"test": json.dumps(members(count))}),
    "streams": streams,
    "columns": lambda count: submit(provided_data=named(count)),
    "options": lambda count: submit(extra=named(count)),
    "nested": lambda count: submit(extra={"a": [[]] * count}),
    "unknown fields": lambda count: run_code(language="none", **named(count)),
}
# In these nothing is wrong but the number.
COUNTED = {"columns", "options", "nested", "unknown fields"}
PLACES = [
    (place, count)
    for place in WRONG
    for count in (900, TOO_MANY)
    if count == TOO_MANY or place not in COUNTED
]


async def refused(sandbox: Sandbox, path: str, body: bytes) -> Any:
    headers = {"Content-Type": "application/json"}
    async with sandbox.session.post(sandbox.url + path, data=body, headers=headers) as response:
        text = await response.read()
    assert 400 <= response.status < 500, (response.status, text[:200])
    assert len(text) < SMALL
    return json.loads(text)["detail"]


@pytest.mark.nightly
async def test_many_wrong_members_have_a_small_answer(sandbox: Sandbox):
    failures = {}
    for place, count in PLACES:
        path, request = WRONG[place](count)
        try:
            detail = await refused(sandbox, path, json.dumps(request).encode())
            assert isinstance(detail, str) or len(detail) <= 5
        except AssertionError as error:
            failures[place, count] = str(error)
    assert not failures, failures


ODD = {
    "lists": b"[" * MILLION,
    "maps": b'{"a":' * MILLION,
    "900 lists": b"[" * 900 + b"]" * 900,
    "digits": b"9" * 5000,
    "long number": b'{"code": ' + b"9" * MILLION + b"}",
    "not UTF-8": b'{"code": "\xff", "language": "python"}',
    "UTF-16": '{"code": "", "language": "python"}'.encode("utf-16"),
    "backslashes": b'{"code": "' + b"\\" * MILLION,
    "quotes": b'{"code": "' + b'\\"' * MILLION,
    "strings": b'"' * MILLION,
    "twice": b'{"code": 1, "code": 2, "language": "python"}',
}


async def test_odd_json_is_refused(sandbox: Sandbox):
    failures = {}
    for name, body in ODD.items():
        for path in ("/run_code", "/run_cases", "/submit", "/get_prompts", "/get_prompt_by_id"):
            try:
                await refused(sandbox, path, body)
            except AssertionError as error:
                failures[name, path] = str(error)
    assert not failures, failures


@pytest.mark.parametrize(
    "fields",
    [
        {"language": "x" * MILLION},
        {"files": {"x" * MILLION: 1}},
        {"x" * MILLION: 1, "fetch_files": ["x" * MILLION, 1]},
        {"memory_limit_MB": "x" * MILLION},
        {"memory_limit_MB": "9" * 4000},
    ],
)
async def test_errors_do_not_quote_the_request(sandbox: Sandbox, fields: dict[str, Any]):
    path, request = run_code(**fields)
    text = json.dumps(await refused(sandbox, path, json.dumps(request).encode()))
    assert "xx" * 100 not in text
    assert "input" not in json.loads(text)[0]


async def test_labels_in_texts_count_together(sandbox: Sandbox):
    """Each of these texts is short enough; all of them decoded were held at once."""
    labels = json.dumps({"a": [[]] * 50_000})
    records = [{"id": i, "content": "", "labels": labels} for i in range(10)]
    path, request = prompts(provided_data=records)
    detail = await refused(sandbox, path, json.dumps(request).encode())
    assert detail == "the labels have more than 200000 values together"


@pytest.mark.parametrize("name", ["x" * MILLION, "../" + "x" * MILLION])
async def test_messages_about_files_are_short(sandbox: Sandbox, name: str):
    for fields in ({"files": {name: b64("x")}}, {"fetch_files": [name]}):
        status, answer = await sandbox.post(code="", language="python", **fields)
        assert (status, len(json.dumps(answer)) < SMALL) == (200, True)


NUMBERS = ["nan", "inf", "-inf", "1e999", 1e300, 7 * 24 * 3600 + 1]


@pytest.mark.parametrize("number", NUMBERS)
async def test_times_are_finite(sandbox: Sandbox, number: float | str):
    for name in ("run_timeout", "compile_timeout"):
        for path, request in (run_code(**{name: number}), submit(**{name: number})):
            detail = await refused(sandbox, path, json.dumps(request).encode())
            assert detail[0]["loc"][-1] == name
    path, request = run_cases(limits=LIMITS | {"wall": number})
    assert (await refused(sandbox, path, json.dumps(request).encode()))[0]["loc"][-1] == "wall"
    path, request = prompts(run_timeout=number)
    await refused(sandbox, path, json.dumps(request).encode())


@pytest.mark.parametrize("number", ["nan", -2, 2**60, 10**400, 0.5])
async def test_memory_is_in_its_range(sandbox: Sandbox, number: Any):
    path, request = run_code(memory_limit_MB=number)
    detail = await refused(sandbox, path, json.dumps(request).encode())
    assert detail[0]["loc"][-1] == "memory_limit_MB"


@pytest.mark.parametrize("limit", [-1, 2**40, "nan"])
async def test_pages_are_in_their_range(sandbox: Sandbox, limit: Any):
    path, request = prompts()
    await refused(sandbox, path, json.dumps(request | {"limit": limit}).encode())


async def test_strings_full_of_commas_are_not_values(sandbox: Sandbox):
    """The inputs of programs have more commas and brackets than any request has values."""
    text = '[{"a": 1}, \\"b\\"], ' * 100_000
    answer = await sandbox.run("import sys; print(len(sys.stdin.read()))", stdin=text)
    assert answer["run_result"]["stdout"] == f"{len(text)}\n"


async def test_prompts_do_not_multiply(sandbox: Sandbox):
    records = [{"id": i, "content": "", "labels": {}} for i in range(1000)]
    config = {"dataset_type": "AutoEvalDataset", "extra": {"context": "x" * MIB}}
    path, request = prompts(provided_data=records, **config)
    assert "characters" in await refused(sandbox, path, json.dumps(request).encode())
    template = {"prompt_template": "$question " * 10_000}
    record = {"id": 1, "content": "x" * MIB, "labels": {}}
    path, request = prompts(provided_data=[record], **config | {"extra": template})
    assert "too long" in await refused(sandbox, path, json.dumps(request).encode())


async def test_bodies_have_a_limit(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(body_limit_bytes=MIB, held_limit_bytes=2 * MIB)

    async def pieces() -> AsyncIterator[bytes]:  # without a length told beforehand
        for _ in range(3):
            yield b" " * MIB

    for body in (b" " * (MIB + 1), pieces()):
        headers = {"Content-Type": "application/json"}
        url = f"{sandbox.url}/run_code"
        async with sandbox.session.post(url, data=body, headers=headers) as response:
            assert response.status == 413
            text = "the request is larger than 1 MiB (PLUMBLINE_SANDBOX_BODY_LIMIT_BYTES)"
            assert await response.json() == {"detail": text}


async def test_bodies_together_have_a_limit(start_sandbox: StartSandbox, tmp_path: Path):
    sandbox = await start_sandbox(concurrency=2, held_limit_bytes=MIB)
    path, request = run_code(code="input()\nimport time; time.sleep(1)", stdin="x" * (MIB - 1000))
    first = asyncio.create_task(sandbox.send("POST", path, json.dumps(request).encode()))
    while await sandbox.metric("plumbline_sandbox_in_flight") == 0:
        await asyncio.sleep(0.01)
    url, data = sandbox.url + path, json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    async with sandbox.session.post(url, data=data, headers=headers) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
    status, _ = await first
    assert status == 200
    status, _ = await sandbox.send("POST", path, data)
    assert status == 200


# The server as a process


@dataclass
class Server:
    sandbox: Sandbox
    process: subprocess.Popen[bytes]

    def memory(self) -> int:
        """Largest resident memory so far, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


@pytest.fixture
async def server(tmp_path: Path, temp_root: Path, session: ClientSession) -> AsyncIterator[Server]:
    settings = {
        "PLUMBLINE_SANDBOX_CONCURRENCY": "4",
        "PLUMBLINE_SANDBOX_TEMP_ROOT": str(temp_root),
    }
    files = tmp_path / "log", tmp_path / "port"
    with service_process("services.sandbox", *files, **settings) as (child, url):
        assert child.process is not None
        yield Server(Sandbox(session, url), child.process)


SLEEPER = "import time; time.sleep(60)"
HONEST = "import time; time.sleep(0.8); print(1)"
FLOOD = ("fetch_files", "files", "records", "inputs")


@pytest.mark.nightly
async def test_programs_do_not_notice_a_flood(server: Server):
    await check_flood(server, rounds=1)


@pytest.mark.nightly
async def test_programs_do_not_notice_a_long_flood(server: Server):
    await check_flood(server, rounds=5)


async def check_flood(server: Server, rounds: int) -> None:
    """A program that may run for 3 seconds is late, and one that needs 0.8 of its 8 is not."""
    sandbox = server.sandbox
    await sandbox.run(HONEST)
    before = server.memory()
    stop = asyncio.Event()
    requests = [WRONG[place](MILLION) for place in FLOOD]
    # Made before the floods begin: a client that stops in mid-body for 20 seconds is cut off.
    bodies = [(path, json.dumps(request).encode()) for path, request in requests]
    sizes: list[int] = []
    floods = [asyncio.create_task(flood(sandbox, bodies, sizes, stop)) for _ in range(2)]
    health = asyncio.create_task(ask_for_health(sandbox, stop))
    while rounds > 0 or len(sizes) < 2 * len(FLOOD):
        late, honest = await asyncio.gather(
            sandbox.run(SLEEPER, run_timeout=3), sandbox.run(HONEST, run_timeout=8)
        )
        assert late["run_result"]["status"] == "TimeLimitExceeded"
        assert honest["status"] == "Success"
        rounds -= 1
    stop.set()
    await asyncio.gather(*floods)
    assert max(sizes) < SMALL
    assert await health > 1
    assert server.memory() < before + 256 * MIB


async def flood(
    sandbox: Sandbox, bodies: Sequence[tuple[str, bytes]], sizes: list[int], stop: asyncio.Event
) -> None:
    while not stop.is_set():
        for path, body in bodies:
            detail = await refused(sandbox, path, body)
            sizes.append(len(json.dumps(detail)))


async def ask_for_health(sandbox: Sandbox, stop: asyncio.Event) -> int:
    count = 0
    while not stop.is_set():
        async with sandbox.session.get(f"{sandbox.url}/healthz") as response:
            assert response.status == 200
        count += 1
        await asyncio.sleep(0.05)
    return count


# Programs whose times would depend on a server that reads and writes their pipes.
PUMPED = {
    "prints much": ("print('x' * 4_000_000)", ""),
    "reads much": ("import sys; print(len(sys.stdin.read()))", "x" * 4_000_000),
    "prints more than it may": ("while True: print('x' * 100_000)", ""),
}


@pytest.mark.nightly
async def test_a_server_that_stands_still_changes_no_program(server: Server):
    """Stopped for longer than each limit, in which the programs end as they always do.

    The harness's call has a limit as well, which a server that reads nothing must not use up.
    """
    sandbox = server.sandbox
    await sandbox.run("print(1)")
    programs = {
        name: asyncio.create_task(
            sandbox.run(f"import time; time.sleep(2)\n{code}", stdin=stdin, run_timeout=8)
        )
        for name, (code, stdin) in PUMPED.items()
    }
    limits = LIMITS | {"budget": 1, "wall": 0.5, "compile": 0.5, "output": 2 * MIB}
    code = "import time; time.sleep(0.3); print(input() * 5)"
    path, request = run_cases(code=code, inputs=["x" * 200_000] * 4, limits=limits)
    cases = asyncio.create_task(sandbox.send("POST", path, json.dumps(request).encode()))
    await stand_still(server, len(programs) + 1, 16)
    for name, running in programs.items():
        result = (await running)["run_result"]
        assert result["status"] == "Finished", name
        assert result["return_code"] == (-9 if "more" in name else 0), name
        assert ("output limit" in result["stderr"]) == ("more" in name), name
    _, answer = await cases
    assert answer["end"] in ("done", "budget")
    assert [case["limit"] for case in answer["cases"].values()] == [None] * len(answer["cases"])


async def stand_still(server: Server, programs: int, seconds: float) -> None:
    """Stop the server while it has so many programs, and let it go on."""
    while await server.sandbox.metric("plumbline_sandbox_in_flight") < programs:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    server.process.send_signal(signal.SIGCONT)
