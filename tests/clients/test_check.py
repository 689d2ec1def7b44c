"""The command ``python -m plumbline_reward``: a newcomer learns what is wrong."""

import socket
from pathlib import Path

import pytest
from plumbline_reward.__main__ import main

from tests.clients.stand_in import Server

REFERENCE = "plumbline:demo/add#0123456789abcdef"


def test_it_shows_the_service_and_a_score(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "answer.md"
    file.write_text("pass 0.5")
    arguments = ["check", "--url", server.url, "--ground-truth", REFERENCE, "--completion"]
    assert main([*arguments, str(file)]) == 0
    shown = capsys.readouterr().out
    assert f"{server.url}: Plumbline 0.1.0" in shown
    assert "demo: 5 problems, role train" in shown
    assert "score 0.5: wrong_answer, 5 of 10 cases passed" in shown
    assert main([*arguments, str(tmp_path / "missing")]) == 1
    assert "missing cannot be read" in capsys.readouterr().err


def test_a_score_needs_both_of_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--ground-truth", REFERENCE]) == 2
    assert "both --ground-truth and --completion" in capsys.readouterr().err


def test_it_says_that_nothing_listens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    assert main(["check", "--url", url, "--timeout", "0.3"]) == 1
    assert "Connection refused" in (shown := capsys.readouterr().err)
    assert "plumb reward --embedded" in shown
    monkeypatch.setenv("PLUMBLINE_REWARD_URL", url)
    assert main(["check", "--timeout", "0.3"]) == 1
    assert "is the service running there" in capsys.readouterr().err


def test_it_says_that_the_token_is_missing(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fault = lambda request: request.json(401, {"error": "a token is required"}) is None
    assert main(["check", "--url", server.url]) == 1
    assert "a token is required\nset PLUMBLINE_REWARD_TOKEN" in capsys.readouterr().err


def test_it_says_that_a_setting_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--url", "localhost:8090"]) == 1
    assert "a setting is wrong: url: 'localhost:8090'" in capsys.readouterr().err


def test_it_prints_the_path_of_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["path", "openrlhf_reward"]) == 0
    assert Path(capsys.readouterr().out.strip()).name == "openrlhf_reward.py"
    assert main(["path", "nothing"]) == 2
    assert main(["path", "../x"]) == 2
