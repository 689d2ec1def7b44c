"""The generator as a process: environment, signals, rejected settings."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

PREFIX = "PLUMBLINE_GENERATOR_"
COMMAND = [sys.executable, "-m", "services.generator"]


def environment(**settings: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PLUMBLINE_")}
    return {**own, "HOST": "127.0.0.1", "PORT": "0", **settings}


def test_serves_and_stops_cleanly(recorded: Path) -> None:
    settings = environment(**{PREFIX + "REPLAY_COMPLETIONS": str(recorded), PREFIX + "MODEL": "m"})
    process = subprocess.Popen(COMMAND, env=settings, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = next(
            line.split('"port": ')[1].split(",")[0].rstrip("}\n")
            for line in process.stdout
            if '"listening"' in line
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as response:
            assert json.load(response)["data"][0]["id"] == "m"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.stdout.close()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("REPLAY_COMPLETIONS", "", "REPLAY_COMPLETIONS"),
        ("REPLAY_COMPLETIONS", "/nowhere/at/all.jsonl", "/nowhere/at/all.jsonl"),
        ("REPLAY_DATA", "/nowhere/data.parquet", "/nowhere/data.parquet"),
        ("REPLAY_FAILURES", "500,boom", "'boom'"),
        ("REPLAY_ERROR_RATE", "1.5", "REPLAY_ERROR_RATE"),
        ("REPLAY_ERROR_RATE", "often", "REPLAY_ERROR_RATE"),
        ("REPLAY_LATENCY", "-1", "REPLAY_LATENCY"),
        ("REPLAY_TIME_SCALE", "inf", "REPLAY_TIME_SCALE"),
        ("BACKEND", "magic", "BACKEND"),
    ],
)
def test_bad_setting_is_one_line(recorded: Path, name: str, value: str, said: str) -> None:
    settings = {PREFIX + "REPLAY_COMPLETIONS": str(recorded), PREFIX + name: value}
    line = refused(environment(**settings))
    assert said in line


@pytest.mark.parametrize(
    ("name", "value"), [("PORT", "99999"), ("LOG_LEVEL", "loud"), ("HOST", "256.0.0.1")]
)
def test_bad_common_setting_is_one_line(recorded: Path, name: str, value: str) -> None:
    settings = environment(**{PREFIX + "REPLAY_COMPLETIONS": str(recorded), name: value})
    line = refused(settings)
    assert value in line or name in line


def test_bad_completions_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"problem_id": "p", "completion": "a"}\n{"problem_id": "p"}\n')
    assert f"{path}:2" in refused(environment(**{PREFIX + "REPLAY_COMPLETIONS": str(path)}))


def test_ambiguous_completions_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    path.write_text(
        '{"problem_id": "p", "completion": "a"}\n{"problem_id": "p", "completion": "b"}\n'
    )
    line = refused(environment(**{PREFIX + "REPLAY_COMPLETIONS": str(path)}))
    assert "sample_index" in line


def refused(settings: dict[str, str]) -> str:
    """Start the service, which must end with exit code 2 and one line on stderr."""
    ended = subprocess.run(
        COMMAND, env=settings, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr
