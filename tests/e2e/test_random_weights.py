"""A run with a generator whose self-check found random weights."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e import plumb

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CHECK = {"looks_random": True, "order_preference": 0.49, "tokens": 280}
ALLOWED = "generation.verl.allow_random_weights=true"


class Generator(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        models = {"data": [{"id": "replay"}]}
        self._answer(models if self.path == "/v1/models" else {"self_check": CHECK})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "woven woven woven"}
        self._answer({"choices": [{"message": message, "finish_reason": "stop"}]})

    def log_message(self, *_arguments: object) -> None:
        pass

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Generator)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_it_is_refused_unless_it_is_allowed_and_then_recorded(url: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    data = str(plumb.DEMO / "data" / "humaneval.parquet")
    options = ("--base-url", url, "--data", data, "data.limit=1", "generation.backend=openai")
    command = [*plumb.demo_run(output), *options]
    refused = plumb.plumb(command)
    assert refused.returncode == 2, refused.stdout
    assert "looks randomly initialized" in refused.stderr
    assert ALLOWED in refused.stderr
    assert not (output / "run.json").exists()
    allowed = plumb.plumb([*command, ALLOWED])
    assert allowed.returncode == 0, allowed.stderr
    assert "warning: the model looks randomly initialized" in allowed.stdout + allowed.stderr
    run = json.loads((output / "run.json").read_text())
    assert run["generator"]["self_check"] == CHECK
