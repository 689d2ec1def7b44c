"""A server with records, as SandboxFusion's has them, before this repository's sandbox."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Status and body of a response, or None to break the connection.
Answer = tuple[int, bytes] | None
Behaviour = Callable[[str, dict[str, Any]], Answer]


@contextmanager
def behaving(behave: Behaviour, port: int = 0) -> Iterator[str]:
    """A server that answers as ``behave`` does, at a free port if it is 0; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._answer({})

        def _answer(self, body: dict[str, Any]) -> None:
            answer = behave(self.path, body)
            if answer is None:
                return
            self.send_response(answer[0])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer[1])))
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, *_: Any) -> None:
            pass

    front = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=front.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{front.server_port}"
    finally:
        front.shutdown()
        front.server_close()


def forward(url: str, body: dict[str, Any]) -> Answer:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@contextmanager
def with_records(sandbox: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """A sandbox with records by data set, and their prompts: a submit without one gets its own."""

    def behave(path: str, body: dict[str, Any]) -> Answer:
        config, name = body["config"], body["dataset"]
        if not config.get("provided_data"):
            if name not in tables:
                return refusal(400, f"this server has no records of {name}")
            records = sorted(tables[name], key=lambda row: (isinstance(row["id"], str), row["id"]))
            if path == "/get_prompts":
                first = body.get("offset", 0)
                records = records[first : first + body.get("limit", len(records))]
                language = config.get("language")
                return 200, json.dumps([_prompt(record, language) for record in records]).encode()
            keys = ("id", "task_id")
            matching = [r for r in records if str(body["id"]) in [str(r.get(k)) for k in keys]]
            if not matching:
                return refusal(404, f"{name} has no record with the id {body['id']!r}")
            config["provided_data"] = matching[0]
        if path == "/get_prompt_by_id":
            return 200, json.dumps(
                _prompt(config["provided_data"], config.get("language"))
            ).encode()
        return forward(f"{sandbox}{path}", body)

    with behaving(behave) as url:
        yield url


def _prompt(record: Mapping[str, Any], language: str | None) -> dict[str, Any]:
    """The prompt of a record as SandboxFusion writes it, except for a sentence."""
    if "entry_point" in record:
        labels = {name: value for name, value in record.items() if name != "prompt"}
        return {"id": record["task_id"], "prompt": record["prompt"], "labels": labels}
    labels = record["labels"]
    labels = json.loads(labels) if isinstance(labels, str) else labels
    if "test_list" in record:
        text = (
            f"You are an expert Python programmer, and here is your task: {record['content']} "
            "Your code should pass these tests:\n\n" + "\n".join(record["test_list"])
        )
    else:
        name = {"cpp": "C++", "python": "Python"}.get(language or "", language)
        text = f"{record['content']}\n\nWrite a program in {name} that reads standard input."
    return {"id": record["id"], "prompt": text, "labels": labels}


def refusal(status: int, text: str) -> Answer:
    return status, json.dumps({"detail": text}).encode()
