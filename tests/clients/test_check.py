"""The command ``python -m plumbline_reward``: a newcomer learns what is wrong."""

import socket

import pytest
from plumbline_reward.__main__ import main

from tests.clients.stand_in import Server

URL = "PLUMBLINE_REWARD_URL"


def test_it_shows_the_service(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, server.url)
    assert main() == 0
    shown = capsys.readouterr().out
    assert f"{server.url}: Plumbline 0.1.0" in shown
    assert "demo: 5 problems, role train" in shown
    assert "a program ran: ok" in shown


def test_it_names_the_cause(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        nothing = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    server.fault = lambda request: request.json(401, {"error": "a token is required"}) is None
    for url, said in (
        (nothing, "Connection refused; to start a service: plumb reward --embedded"),
        (nothing, "is the service running there"),
        (server.url, "a token is required\nset PLUMBLINE_REWARD_TOKEN"),
        ("localhost:8090", "a setting is wrong: url: 'localhost:8090'"),
    ):
        monkeypatch.setenv(URL, url)
        assert main(timeout=0.3) == 1
        assert said in capsys.readouterr().err
