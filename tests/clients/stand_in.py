"""A stand-in of the reward service that provokes faults; it judges by the completion's own word.

A completion ``pass 0.5 <anything>`` has the pass ratio 0.5.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[["Request"], bool]
"""It answers a request in its own way and returns True, or returns False to have it judged."""


def verdict_of(item: dict[str, Any], rule: object = "pass_ratio") -> dict[str, Any]:
    ratio = float(item["completion"].split()[1])
    return {
        "score": float(ratio == 1) if rule == "accepted" else ratio,
        "accepted": ratio == 1,
        "pass_ratio": ratio,
        "status": "accepted" if ratio == 1 else "wrong_answer",
        "detail": None,
        "cases_passed": round(ratio * 10),
        "cases_total": 10,
        "cases_not_run": 0,
        "judge_seconds": 0.25,
        "queue_seconds": 0.5,
        "judged": True,
        "cached": False,
        "reference": item.get("ground_truth"),
    }


UNJUDGED: dict[str, object] = {
    "score": None, "accepted": None, "pass_ratio": None, "status": "api_error", "judged": False,
    "reason": "sandbox lost",
}  # fmt: skip


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Server"
    body: dict[str, Any]

    @property
    def items(self) -> list[dict[str, Any]]:
        return self.body["items"]

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer()

    def do_GET(self) -> None:
        self.body = {}
        self._answer()

    def _answer(self) -> None:
        with self.server.lock:
            self.server.requests.append(Received(self.path, dict(self.headers), self.body))
        fault = self.server.fault
        try:
            if fault is not None and fault(self):
                return
            self.judge()
        except OSError:
            self.close_connection = True

    def judge(self) -> None:
        if self.path == "/v1/score":
            self.stream()
        elif self.path == "/v1/run":
            ended = {"status": "ok", "exit_code": 0, "seconds": 0.1, "truncated": False}
            self.json(200, {**ended, "stdout": self.body["stdin"], "stderr": ""})
        else:
            datasets = {"demo": {"role": "train", "problems": 5}}
            self.json(200, {"version": "0.1.0", "datasets": datasets})

    def stream(self) -> None:
        """Judge everything, in reverse, and end the stream properly."""
        self.begin()
        for index in reversed(range(len(self.items))):
            self.line({"index": index, **verdict_of(self.items[index], self.body["score"])})
        self.end(judged=len(self.items))

    def judge_but(self, lost: Callable[[str], bool], **reason: str) -> bool:
        """Judge, but leave completions that are lost without a verdict."""
        self.begin()
        unjudged = 0
        for index, item in enumerate(self.items):
            without = lost(item["completion"])
            unjudged += without
            answer = {**UNJUDGED, **reason} if without else verdict_of(item)
            self.line({"index": index, **answer})
        self.end(len(self.items) - unjudged, unjudged)
        return True

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def line(self, value: object) -> None:
        self.chunk(value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self, judged: int, unjudged: int = 0) -> None:
        self.line({"done": True, "judged": judged, "unjudged": unjudged})
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def json(self, status: int, value: object, **headers: str) -> None:
        self.text(status, json.dumps(value), **headers)

    def text(self, status: int, text: str, **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, content in headers.items():
            self.send_header(name.replace("_", "-"), content)
        self.end_headers()
        self.wfile.write(data)

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection.close()
        self.close_connection = True

    def hang_up(self) -> None:
        """Close the connection as a process does that ends."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def wait_for_hang_up(self, seconds: float = 20) -> bool:
        """Wait until the client closes the connection."""
        self.connection.settimeout(seconds)
        try:
            gone = self.connection.recv(1) == b""
        except ConnectionError:
            gone = True
        except TimeoutError:
            gone = False
        self.close_connection = True
        return gone

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Request)
        self.lock = threading.Lock()
        self.requests: list[Received] = []
        self.fault: Fault | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    def asked(self) -> list[str]:
        """All completions that were asked for, in order, again and again."""
        return [item["completion"] for body in self.bodies for item in body.get("items", [])]

    def once(self, *faults: Fault) -> None:
        """Have the first requests answered by these, one each."""
        left = list(faults)

        def fault(request: Request) -> bool:
            with self.lock:
                chosen = left.pop(0) if left else None
            return chosen(request) is not False if chosen else False

        self.fault = fault

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def stand_in(port: int = 0) -> Iterator[Server]:
    server = Server(port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
