"""`plumb view` as a process, asked by a real HTTP client."""

import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.cli.commands import plumb
from tests.cli.fork_server import start_forked
from tests.shared.finished_runs import write_run
from tests.waiting import until

_SECONDS = 60


class View:
    """The command over a folder, until the block ends."""

    def __init__(self, *arguments: str, folder: Path, **settings: str) -> None:
        self._outputs = (folder / f"{uuid4().hex}.out", folder / f"{uuid4().hex}.err")
        environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")} | settings
        command = ("view", "--port", "0", *arguments)
        self.process = start_forked(command, folder, environment, self._outputs)
        until("an address and a line", lambda: len(self.lines()) > 1, every=0.02)
        self.url, self.line = self.lines()[:2]

    def lines(self) -> list[str]:
        text = self._outputs[0].read_text() if self._outputs[0].exists() else ""
        return [line.strip() for line in text.splitlines()]

    def ask(self, path: str, **headers: str) -> tuple[int, Any]:
        request = urllib.request.Request(f"{self.url}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def wait(self, path: str, done: Callable[[Any], bool]) -> Any:
        until(f"{path} is as it should be", lambda: done(self.ask(path)[1]))
        return self.ask(path)[1]

    def end(self, sign: signal.Signals = signal.SIGTERM) -> tuple[int | None, str]:
        assert self.process.pid is not None
        os.kill(self.process.pid, sign)
        self.process.join(_SECONDS)
        return self.process.exitcode, self._outputs[1].read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@pytest.fixture
def views(tmp_path: Path) -> Iterator[Callable[..., View]]:
    started: list[View] = []

    def start(*arguments: str, **settings: str) -> View:
        started.append(View(*arguments, folder=tmp_path, **settings))
        return started[-1]

    yield start
    for view in started:
        view.kill()


def test_runs_of_a_folder(views: Callable[..., View], tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    view = views(str(folder))
    assert view.url.startswith("http://127.0.0.1:")
    assert view.line == f"{folder}: no such folder; waiting for it (Ctrl-C ends it)"
    assert view.ask("api/runs") == (200, {})

    write_run(folder / "a", {"d1": "++-"})
    runs = view.wait("api/runs", lambda runs: runs.get("a-0123", {}).get("reading") is False)
    assert runs["a-0123"]["verdicts"] == 3
    status, page = view.ask("api/runs/a-0123/samples?status=wrong_answer")
    assert (status, [row["problem_id"] for row in page["samples"]]) == (200, ["p002"])
    status, sample = view.ask("api/runs/a-0123/samples/d1/p002/0")
    assert (status, sample["verdict"]["final_status"]) == (200, "wrong_answer")

    shutil.rmtree(folder / "a")
    view.wait("api/runs", lambda runs: runs == {})
    assert view.ask("api/runs/a-0123")[0] == 404
    assert view.end(signal.SIGINT) == (0, "")


def test_the_second_time_nothing_is_read(views: Callable[..., View], tmp_path: Path) -> None:
    write_run(tmp_path / "outputs" / "a", {"d1": "++-"})
    write_run(tmp_path / "outputs" / "b", {"d1": "+--"})
    first = views(str(tmp_path / "outputs"))
    assert first.line.startswith(f"2 runs below {tmp_path / 'outputs'};")
    runs = first.wait("api/runs", lambda runs: [r["reading"] for r in runs.values()] == 2 * [False])
    # Whoever shows the same folder meanwhile reads it into an index of its own.
    beside = views(str(tmp_path / "outputs"))
    assert beside.wait("api/runs", lambda found: found == runs)
    assert first.end() == (0, "")
    (kept,) = (tmp_path / "cache" / "plumbline" / "view").iterdir()
    before = (kept / "index.sqlite").stat().st_mtime_ns

    again = views(str(tmp_path / "outputs"))
    assert again.ask("api/runs") == (200, runs)
    assert again.end() == (0, "")
    assert (kept / "index.sqlite").stat().st_mtime_ns == before


def test_access_and_addresses(views: Callable[..., View], tmp_path: Path) -> None:
    prefix, public = "/user/ada/", "https://hub.example.org/user/ada/"
    hub = {"JUPYTERHUB_SERVICE_PREFIX": prefix, "JUPYTERHUB_PUBLIC_URL": ""}
    view = views(str(tmp_path), **hub, PLUMBLINE_AGGREGATOR_TOKEN="a-long-secret-token")
    assert view.line == f"on JupyterHub: /user/ada/proxy/{view.url.rpartition(':')[2]}"
    token = "it asks for the token: add ?token=… to the address once"
    until("a line about the token", lambda: view.lines()[2:3] == [token])
    assert view.ask("api/runs")[0] == 401
    assert view.ask("api/runs", Authorization="Bearer a-long-secret-token")[0] == 200
    assert view.ask("healthz")[0] == 200
    open_view = views(str(tmp_path), **hub | {"JUPYTERHUB_PUBLIC_URL": public})
    assert open_view.line.startswith(f"on JupyterHub: {public}proxy/")
    assert open_view.ask("api/runs", Host="evil.example")[0] == 421
    with urllib.request.urlopen(open_view.url, timeout=30) as page:
        assert "default-src 'none'; script-src 'self'" in page.headers["Content-Security-Policy"]


def test_what_cannot_be_served(tmp_path: Path) -> None:
    for arguments, message in (
        (["nothing://x"], "nothing"),
        ([str(tmp_path), "--port", "70000"], "--port"),
        ([str(tmp_path), "--host", "192.0.2.1"], "192.0.2.1"),
    ):
        done = plumb("view", *arguments, folder=tmp_path, XDG_CACHE_HOME=str(tmp_path))
        assert (done.code, message in done.stderr) == (2, True)
        assert "Traceback" not in done.stderr
