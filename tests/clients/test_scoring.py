"""Scores through the client: coalescing, order, rules, cancellation, threads, loops and forks."""

import asyncio
import os
import random
import subprocess
import sys
import threading

import pytest
from plumbline_reward import Client, ProgramResult, compute_score, requests, score

from tests.clients.stand_in import Request, Server

REFERENCE = "plumbline:demo/add#0123456789abcdef"


def item(completion: str) -> dict[str, object]:
    return {"ground_truth": REFERENCE, "completion": completion}


def test_verdicts_come_in_the_order_of_the_items(server: Server) -> None:
    ratios = [random.randint(0, 100) / 100 for _ in range(50)]
    verdicts = score([item(f"pass {ratio}") for ratio in ratios], url=server.url)
    assert [verdict and verdict.score for verdict in verdicts] == ratios
    assert len(server.requests) == 1
    assert server.requests[0].headers["Accept"] == "application/x-ndjson"


def test_a_reference_goes_alone_and_inline_tests_with_their_data_source(server: Server) -> None:
    async def both() -> None:
        await compute_score("apps", "pass 1", REFERENCE, url=server.url)
        await compute_score("apps", "pass 1", '{"inputs": []}', url=server.url)

    asyncio.run(both())
    (first,), (second,) = (body["items"] for body in server.bodies)
    assert first == {"ground_truth": REFERENCE, "completion": "pass 1"}
    assert second == {
        "ground_truth": '{"inputs": []}', "completion": "pass 1", "dataset": "apps",
    }  # fmt: skip


def test_a_time_limit_may_be_longer_than_a_socket_waits(server: Server) -> None:
    verdict = score([item("pass 1")], url=server.url, timeout=1e12)[0]
    assert verdict is not None and verdict.score == 1.0


def test_many_concurrent_calls_are_few_requests(server: Server) -> None:
    number = 2048

    async def burst() -> list[dict[str, float]]:
        return await asyncio.gather(
            *(
                compute_score("x", f"pass {n % 11 / 10} {n}", REFERENCE, url=server.url)
                for n in range(number)
            )
        )

    scores = asyncio.run(burst())
    assert [s["score"] for s in scores] == [n % 11 / 10 for n in range(number)]
    assert sorted(server.asked()) == sorted(f"pass {n % 11 / 10} {n}" for n in range(number))
    assert len(server.requests) < 400  # one each 10 ms, however slow this machine is


def test_calls_with_other_rules_and_purposes_do_not_mix(server: Server) -> None:
    async def calls() -> list[dict[str, float]]:
        return await asyncio.gather(
            compute_score("x", "pass 0.9", REFERENCE, url=server.url),
            compute_score("x", "pass 0.9", REFERENCE, url=server.url, score="accepted"),
            compute_score("x", "pass 0.9", REFERENCE, {"split": "test"}, url=server.url),
        )

    assert [s["score"] for s in asyncio.run(calls())] == [0.9, 0.0, 0.9]
    assert {(b["score"], b["purpose"]) for b in server.bodies} == {
        ("pass_ratio", "train"),
        ("accepted", "train"),
        ("pass_ratio", "validation"),
    }


def test_a_cancelled_call_leaves_the_others_of_its_request_alone(server: Server) -> None:
    asked, cancelled = threading.Event(), threading.Event()

    def later(request: Request) -> bool:
        asked.set()
        cancelled.wait(60)
        return False

    server.once(later)

    async def calls() -> float:
        doomed = asyncio.create_task(compute_score("x", "pass 0.1", REFERENCE, url=server.url))
        other = asyncio.create_task(compute_score("x", "pass 0.2", REFERENCE, url=server.url))
        await asyncio.to_thread(asked.wait, 10)
        doomed.cancel()
        cancelled.set()
        return (await other)["score"]

    assert asyncio.run(calls()) == 0.2
    assert len(server.requests) == 1


def test_a_child_process_after_a_fork_asks_by_itself(server: Server) -> None:
    client = Client(server.url)
    client.score([item("pass 1")])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            verdict = client.score([item("pass 0.5")])[0]
            status = 0 if verdict is not None and verdict.score == 0.5 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    verdict = client.score([item("pass 0.25")])[0]
    assert verdict is not None and verdict.score == 0.25


def test_the_interpreter_ends_while_a_request_is_under_way(server: Server) -> None:
    server.fault = lambda request: request.wait_for_hang_up(80) or True
    program = (
        "import plumbline_reward, time\n"
        f"plumbline_reward.Client({server.url!r}).submit("
        f"{{'ground_truth': {REFERENCE!r}, 'completion': 'pass 1'}})\n"
        "time.sleep(0.3)"
    )
    # It would wait for the stand-in, which waits for twenty seconds longer than this.
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=_environment())


def test_the_environment_configures(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_REWARD_URL", server.url + "/")
    monkeypatch.setenv("PLUMBLINE_REWARD_TOKEN", "secret-word")
    monkeypatch.setenv("PLUMBLINE_REWARD_SCORE", "accepted")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    verdict = score([item("pass 0.5")])[0]
    assert verdict is not None and verdict.score == 0.0
    assert server.requests[0].headers["Authorization"] == "Bearer secret-word"
    assert "secret-word" not in repr(Client())


def test_programs_run(server: Server) -> None:
    client = Client(server.url)
    assert client.run("print(input())", stdin="7").stdout == "7"
    assert asyncio.run(client.run_async("print(input())", stdin="8")).stdout == "8"
    assert server.bodies[0].keys() == {"code", "stdin", "language", "timeout", "deadline"}
    assert client.info()["version"] == "0.1.0"


def test_many_programs_share_a_few_threads(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "AT_ONCE", 4)
    threads: list[int] = []

    def count(_request: Request) -> bool:
        threads.append(sum(t.name == "plumbline-reward" for t in threading.enumerate()))
        return False

    server.fault = count
    client = Client(server.url)

    async def burst() -> list[ProgramResult]:
        return await asyncio.gather(*(client.run_async("1", stdin=str(n)) for n in range(40)))

    assert [result.stdout for result in asyncio.run(burst())] == [str(n) for n in range(40)]
    assert max(threads) <= 4


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
