"""Faults of the service and of the network: every answer arrives once, and none is made up."""

import json
import logging
import random
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from plumbline_reward import Client, NotJudgedError, RefusedError, requests

from tests.clients.stand_in import Fault, Request, Server, stand_in, verdict_of

REFERENCE = "plumbline:demo/add#0123456789abcdef"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "FIRST_DELAY", 0.02)
    monkeypatch.setattr(requests, "LONGEST_DELAY", 0.2)


def items(number: int) -> list[dict[str, object]]:
    return [{"ground_truth": REFERENCE, "completion": f"pass {n / 100} {n}"} for n in range(number)]


def scores(client: Client, number: int) -> list[float | None]:
    return [verdict and verdict.score for verdict in client.score(items(number))]


def expected(number: int) -> list[float]:
    return [n / 100 for n in range(number)]


def answers(request: Request, *indices: int) -> None:
    for index in indices:
        request.line({"index": index, **verdict_of(request.items[index])})


def verdict_with(**fields: object) -> bytes:
    """The verdict on the first item with other fields."""
    return json.dumps({"index": 0, **verdict_of(items(1)[0]), **fields}).encode() + b"\n"


def cut_within_a_line(request: Request) -> None:
    request.chunk(verdict_with()[:40])
    request.hang_up()


BREAKS: dict[str, Callable[[Request], object]] = {
    "cut": Request.hang_up,
    "cut within a line": cut_within_a_line,
    "ended too early": lambda request: request.wfile.write(b"0\r\n\r\n"),
    "reset": Request.reset,
}
BAD_LINES = {
    "no JSON": b"{nonsense\n",
    "NaN": b'{"index": 0, "score": NaN}\n',
    "too long": b"x" * (2**20 + 1) + b"\n",
    "unknown index": verdict_with(index=4),
    "answered index": verdict_with(index=3),
    "score above 1": verdict_with(score=1.5),
    "judged without a verdict": verdict_with(status="api_error"),
    "unjudged with a score": verdict_with(judged=False),
    "more passed than cases": verdict_with(cases_passed=11),
}


@pytest.mark.parametrize("name", [*BREAKS, *BAD_LINES])
def test_only_what_is_missing_is_asked_for_again(server: Server, name: str) -> None:
    def fault(request: Request) -> None:
        request.begin()
        answers(request, 3, 1)
        if name in BREAKS:
            BREAKS[name](request)
        else:
            request.line(BAD_LINES[name])
            answers(request, 0, 2)
            request.end(judged=4)

    server.once(fault)
    assert scores(Client(server.url), 4) == expected(4)
    asked = [[item["completion"] for item in body["items"]] for body in server.bodies]
    assert asked[1:] == [["pass 0.0 0", "pass 0.02 2"]]


def no_http(request: Request) -> None:
    request.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    request.hang_up()


INSTEAD_OF_ANSWERS: dict[str, Fault] = {
    "end of the connection": lambda request: request.hang_up(),
    "reset": lambda request: request.reset(),
    "no HTTP": no_http,
    "a page": lambda request: request.text(200, "<html>a login page</html>"),
    "nothing": lambda request: request.text(200, ""),
    "no stream": lambda request: request.json(
        200, {"results": [verdict_of(item) for item in request.items]}
    ),
    "301": lambda request: request.text(301, "", Location="/elsewhere"),
    "500": lambda request: request.json(500, {"error": "a bug"}),
    "502": lambda request: request.text(502, "<html>bad gateway</html>"),
    "503": lambda request: request.json(503, {"error": "no sandbox answers"}),
    "504": lambda request: request.json(504, {"error": "too late"}),
    "429": lambda request: request.json(429, {"error": "too many completions"}),
    "404 of a proxy": lambda request: request.text(404, "default backend - 404"),
    "404 of a framework": lambda request: request.json(404, {"detail": "not found"}),
    "408": lambda request: request.json(408, {"error": "the body came too slowly"}),
    "422 of an unknown item": lambda request: request.json(
        422, {"error": "no", "items": [{"index": 9, "error": "x"}]}
    ),
}


@pytest.mark.parametrize("name", INSTEAD_OF_ANSWERS)
def test_everything_is_asked_for_again(server: Server, name: str) -> None:
    server.once(INSTEAD_OF_ANSWERS[name], INSTEAD_OF_ANSWERS[name])
    assert scores(Client(server.url), 4) == expected(4)
    assert len(server.requests) == 3


def test_what_is_unjudged_is_asked_for_again_and_never_a_number(server: Server) -> None:
    server.once(lambda request: request.judge_but(lambda text: text[-1] in "13"))
    assert scores(Client(server.url), 4) == expected(4)
    assert [item["completion"][-1] for item in server.bodies[1]["items"]] == ["1", "3"]


def hang(request: Request) -> None:
    request.wait_for_hang_up()


def hang_within_a_stream(request: Request) -> None:
    request.begin()
    request.wait_for_hang_up()


def drip(request: Request) -> None:
    request.begin()
    while True:
        request.chunk(b" ")
        time.sleep(0.05)


@pytest.mark.parametrize("fault", [hang, hang_within_a_stream, drip])
def test_a_service_that_never_answers_is_given_up_at_the_limit(
    server: Server, fault: Fault
) -> None:
    server.fault = lambda request: fault(request) is None
    begin = time.monotonic()
    with pytest.raises(NotJudgedError, match=r"0\.3 s by http"):
        Client(server.url, timeout=0.3).score(items(3))
    with pytest.raises(NotJudgedError, match=r"0\.3 s by http"):
        Client(server.url, timeout=0.3).run("1")
    assert time.monotonic() - begin > 0.55


def test_a_service_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}", timeout=30)
    with ThreadPoolExecutor(2) as pool:
        waiting, program = pool.submit(scores, client, 3), pool.submit(client.run, "1", stdin="5")
        time.sleep(0.5)
        assert not waiting.done()
        with stand_in(port):
            assert waiting.result(20) == expected(3)
            assert program.result(20).stdout == "5"
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "refused" in warnings[0].getMessage()


@pytest.mark.parametrize("named", [False, True])
def test_a_refused_item_does_not_fail_those_it_travels_with(server: Server, named: bool) -> None:
    def refuse_seven(request: Request) -> bool:
        bad = [i for i, item in enumerate(request.items) if item["completion"].endswith(" 7")]
        if not bad:
            return False
        listed = [{"index": index, "error": "no problem 'x'"} for index in bad]
        request.json(404, {"error": "no problem", **({"items": listed} if named else {})})
        return True

    server.fault = refuse_seven
    client = Client(server.url)
    futures = client._submit_all(items(20))
    for number, future in enumerate(futures):
        if number == 7:
            with pytest.raises(RefusedError, match="no problem") as caught:
                future.result(10)
            assert caught.value.status == 404
        else:
            assert future.result(10).score == number / 100
    assert len(server.requests) <= (3 if named else 11)


def test_tests_that_cannot_run_are_refused_at_once(server: Server) -> None:
    server.fault = lambda request: request.judge_but(lambda _: True, reason="test_error")
    with pytest.raises(RefusedError, match="tests cannot run"):
        Client(server.url).score(items(2))
    assert len(server.requests) == 1


def test_a_missing_token_refuses_everything_at_once(server: Server) -> None:
    server.fault = lambda request: request.json(401, {"error": "no token"}) is None
    with pytest.raises(RefusedError, match="no token"):
        Client(server.url).score(items(100))
    assert len(server.requests) == 1
    with pytest.raises(RefusedError, match="no token"):
        Client(server.url).run("1")
    with pytest.raises(RefusedError, match="no token"):
        Client(server.url).info()


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"completion": "x", "ground_truth": {"a": float("nan")}}, "JSON"),
        ({"completion": "x", "ground_truth": object()}, "object is no JSON"),
    ],
)
def test_what_cannot_be_sent_is_refused_here(
    server: Server, item: dict[str, object], text: str
) -> None:
    with pytest.raises(RefusedError, match=text):
        Client(server.url).score([item])
    assert server.requests == []


def test_a_storm_of_faults_loses_and_doubles_nothing(server: Server) -> None:
    chance = random.Random(1)
    lock = threading.Lock()

    def storm(request: Request) -> bool:
        with lock:
            kind = chance.randrange(10)
        if kind == 0:
            request.json(429, {"error": "too many"}, Retry_After="0")
        elif kind == 1:
            request.reset()
        elif kind == 2:
            request.json(503, {"error": "later"})
        elif kind < 7:
            request.begin()
            answers(request, *range(0, len(request.items), 2))
            if kind == 3:
                request.line(b'{"index": 0, "score": 0}\n')
            request.hang_up()
        else:
            return False
        return True

    server.fault = storm
    client = Client(server.url, timeout=100)
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: scores(client, 50), range(16)):
            assert result == expected(50)


def test_a_process_without_a_thread_to_spare_goes_on_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = threading.Thread.start, []

    def start_later(thread: threading.Thread) -> None:
        if refused.count(thread.name) < 2 and thread.name.startswith("plumbline-reward"):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)
    client = Client(server.url, timeout=5)
    for _ in range(2):  # the first thread: the caller knows
        with pytest.raises(RuntimeError, match="thread"):
            client.submit(items(1)[0])
    futures = [client.submit(item) for item in items(3)]
    assert [future.result(timeout=60).score for future in futures] == expected(3)
    assert server.asked() == ["pass 0.0 0", "pass 0.01 1", "pass 0.02 2"]
