"""Stand-in for the HTTP API of Weights & Biases, on the loopback address, with its failures.

It answers what version 0.31 of the library sends for a run with metrics, a table and an artifact:
GraphQL operations by name, the stream of history and summary, and uploads to storage.
"""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """An answer of the server to all requests whose path begins with ``path``.

    Attributes:
        path: ``/graphql``, ``/files`` (the stream of metrics) or ``/storage`` (uploads).
        status: HTTP status.
        message: What the answer's errors say.
    """

    path: str
    status: HTTPStatus
    message: str


class WandbServer(ThreadingHTTPServer):
    """The server, and what it was given."""

    daemon_threads = True

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault = fault
        self.runs: list[Json] = []
        self.keys: set[str | None] = set()
        self.history: list[Json] = []
        self.storage: dict[str, bytes] = {}
        self.committed: set[str] = set()
        self.artifacts: dict[str, Json] = {}
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, operation: str, given: Json) -> Json:
        """The ``data`` of a GraphQL answer."""
        match operation:
            case "UpsertBucket":
                self.runs.append(given)
                return {"upsertBucket": {"bucket": _bucket(given), "inserted": True}}
            case "RunResumeStatus":
                return {"model": None}
            case "Viewer":
                return {"viewer": {"id": "u", "entity": "team", "username": "u", "flags": "{}"}}
            case "ServerFeaturesQuery":
                return {"serverInfo": {"features": []}}
            case "CreateRunFiles":
                files = [{"name": file, "uploadUrl": self._place(file)} for file in given["files"]]
                return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
            case "CreateArtifact":
                return {"createArtifact": {"artifact": self._artifact(given["input"])}}
            case "CreateArtifactManifest" | "UpdateArtifactManifest":
                name = operation[0].lower() + operation[1:]
                return {name: {"artifactManifest": self._manifest(given)}}
            case "CreateArtifactFiles":
                found = [self._file(file) for file in given["input"]["artifactFiles"]]
                return {"createArtifactFiles": {"files": {"edges": found}}}
            case "CommitArtifact":
                self.committed.add(given["artifactID"])
                return {"commitArtifact": {"artifact": {"id": given["artifactID"], "digest": "d"}}}
            case _:  # no artifact of this name yet
                return {"project": None}

    def _artifact(self, given: Json) -> Json:
        name = f"artifact{len(self.artifacts)}"
        self.artifacts[name] = given
        return {"id": name, "state": "PENDING", "artifactSequence": {"latestArtifact": None}}

    def _manifest(self, given: Json) -> Json:
        where = self._place(f"manifest/{given.get('artifactID') or given['artifactManifestID']}")
        return {"id": given.get("artifactID"), "file": {"id": "f", **_upload(where)}}

    def _file(self, given: Json) -> Json:
        where = f"{given['artifactID']}/{given['name']}"
        return {
            "node": {
                "id": where,
                "name": given["name"],
                "displayName": given["name"],
                "storagePath": where,
                "uploadMultipartUrls": None,
                "artifact": {"id": given["artifactID"]},
                **_upload(self._place(where)),
            }
        }

    def _place(self, name: str) -> str:
        return f"{self.url}/storage/{name}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Be silent about clients that were killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.paths.append(self.path)
        fault = self.server.fault
        if fault and self.path.startswith(fault.path):
            self._reply({"errors": [{"message": fault.message}]}, fault.status)
        elif self.path == "/graphql":
            self._graphql(json.loads(body))
        elif self.path.endswith("/file_stream"):
            self._stream(json.loads(body))
        elif self.path.startswith("/storage/"):
            self.server.storage[self.path.removeprefix("/storage/")] = body
            self._reply({})
        else:
            self._reply({"error": "not found"}, HTTPStatus.NOT_FOUND)

    do_GET = do_PUT = do_POST

    def _graphql(self, request: Json) -> None:
        operation = request.get("operationName") or ""
        self.server.keys.add(self.headers.get("Authorization"))
        self._reply({"data": self.server.answer(operation, request.get("variables") or {})})

    def _stream(self, request: Json) -> None:
        lines = request.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
        self.server.history.extend(map(json.loads, lines))
        self._reply({})

    def _reply(self, document: Json, status: HTTPStatus = HTTPStatus.OK) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def wandb_server(fault: Fault | None = None) -> Iterator[WandbServer]:
    """Serve until the block ends."""
    with WandbServer(fault) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def _bucket(given: Json) -> Json:
    entity = given.get("entity") or "team"
    return {
        "id": "r",
        "name": given["name"],
        "displayName": given.get("displayName"),
        "description": None,
        "config": "{}",
        "sweepName": None,
        "historyLineCount": 0,
        "project": {
            "id": "p",
            "name": given.get("project") or "p",
            "entity": {"id": "e", "name": entity},
        },
    }


def _upload(where: str) -> Json:
    return {"uploadUrl": where, "uploadHeaders": []}
