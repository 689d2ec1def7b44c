"""Secrets with unusual characters, servers that ask for them, and a search for them in bytes."""

import base64
import json
import re
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True)
class Login:
    """A user and a password, which are secrets both."""

    user: str
    password: str

    def at(self, url: str, *, quoted: bool = True) -> str:
        scheme, rest = url.split("://")
        password = quote(self.password, safe="") if quoted else self.password
        return f"{scheme}://{quote(self.user, safe='')}:{password}@{rest}"

    @property
    def header(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def forms(secret: str) -> set[bytes]:
    """A secret in the encodings in which it might be written."""
    data = secret.encode()
    encodings = {data, quote(secret).encode(), quote(secret, safe="").encode()}
    encodings |= {json.dumps(secret)[1:-1].encode(), repr(secret)[1:-1].encode()}
    for before in range(3):  # wherever it begins in a longer text
        encoded = base64.b64encode(b"\0" * before + data)
        encodings.add(encoded[4 if before else 0 : -4])
    return {form for form in encodings if len(form) >= 6}


class Search:
    """Looks for secrets in texts, files and answers; ``found`` names each place."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms = {form: secret for secret in secrets for form in forms(secret)}
        self._pattern = re.compile(b"|".join(map(re.escape, sorted(self._forms, key=len))))
        self.found: set[str] = set()
        self.places = 0

    def look(self, place: str, data: bytes) -> None:
        self.places += 1
        for text in (data, *_inflated(data)):
            for match in self._pattern.finditer(text):
                near = text[max(0, match.start() - 60) : match.end() + 20]
                self.found.add(f"{place}: {self._forms[match[0]]!r} in {near!r}")

    def look_below(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            self.look(str(path.name), str(path).encode())
            if path.is_file():
                self.look(str(path), path.read_bytes())

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> bytes:
        request = urllib.request.Request(url, headers=dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                body: bytes = answer.read()
                self.look(url, str(answer.headers).encode())
        except urllib.error.HTTPError as error:
            body = error.read()
        self.look(url, body)
        return body


def _inflated(data: bytes) -> Iterator[bytes]:
    """What was deflated in the data: records of the ledger, or a compressed file."""
    for match in re.finditer(b"\x78[\x01\x5e\x9c\xda]|\x1f\x8b\x08", data):
        try:
            yield zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data[match.start() :])
        except zlib.error:
            continue


# Servers

Answer = Callable[[BaseHTTPRequestHandler, bytes], tuple[int, bytes, dict[str, str]]]
"""Status, body and headers of an answer to a request that was let in."""


@dataclass
class Gate:
    """A server that asks for a login, and repeats the headers of whoever has another.

    ``echo`` is the number of POST requests that are answered with 500 and their own headers first.
    """

    login: Login
    echo: int = 0
    refused: int = 0
    release: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def serving(self, answer: Answer) -> Iterator[str]:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Authorization") != gate.login.header:
                    gate.refused += 1
                    self.send(401, json.dumps({"error": str(self.headers)}).encode())
                elif self.command == "POST" and gate.echo:
                    gate.echo -= 1
                    self.send(500, str(self.headers).encode())
                else:
                    self.send(*answer(self, body))

            do_GET = do_HEAD = do_POST = handle_any

            def send(
                self, status: int, body: bytes, headers: Mapping[str, str] | None = None
            ) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            self.release.set()
            server.shutdown()
            thread.join()
            server.server_close()


class Model:
    """A generator; the first completion is given at once, others when ``release`` is set."""

    def __init__(self, release: threading.Event) -> None:
        self._release = release
        self._given = 0

    def __call__(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        if request.path == "/v1/models":
            return 200, json.dumps({"data": [{"id": "coder"}]}).encode(), {}
        if request.path != "/v1/chat/completions":
            return 404, b"{}", {}
        self._given += 1
        if self._given > 1:
            self._release.wait(60)
        choice = {
            "message": {"content": "```python\nprint(input())\n```"},
            "finish_reason": "stop",
        }
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        return 200, json.dumps({"choices": [choice], "usage": usage}).encode(), {}


class Proxy:
    """Passes requests on to another server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        passed = urllib.request.Request(
            self._url + request.path,
            data=body if request.command == "POST" else None,
            method=request.command,
            headers={"Content-Type": request.headers.get("Content-Type") or "text/plain"},
        )
        try:
            with urllib.request.urlopen(passed, timeout=60) as answer:
                offered = answer.headers.get("Plumbline-Run-Cases")
                return 200, answer.read(), {"Plumbline-Run-Cases": offered} if offered else {}
        except urllib.error.HTTPError as error:
            return error.code, error.read(), {}


class Files:
    """A file, in ranges, under any path."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()

    def __call__(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        ranges = {"Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range") or "")
        if wanted is None:
            return 200, self._data, ranges
        first, last = int(wanted[1]), min(int(wanted[2]), len(self._data) - 1)
        place = f"bytes {first}-{last}/{len(self._data)}"
        return 206, self._data[first : last + 1], {**ranges, "Content-Range": place}
