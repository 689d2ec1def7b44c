"""The generator as a process: environment, signals, rejected settings."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.processes import run_mains

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


def test_a_bad_setting_is_one_line_and_exit_code_2(recorded: Path, tmp_path: Path) -> None:
    """And so are completions that cannot be used. The line names what is wrong."""
    unusable, twice = tmp_path / "bad.jsonl", tmp_path / "twice.jsonl"
    answer = '{"problem_id": "p", "completion": "a", "sample_index": 0}\n'
    unusable.write_text(answer + '{"problem_id": "p"}\n')
    twice.write_text(answer + answer.replace('"a"', '"b"'))
    completions = PREFIX + "REPLAY_COMPLETIONS"
    cases = [
        (completions, "", completions),
        (completions, "/nowhere/at/all.jsonl", "/nowhere/at/all.jsonl"),
        (completions, str(unusable), f"{unusable}:2"),
        (completions, str(twice), "sample_index"),
        (PREFIX + "REPLAY_LATENCY", "-1", "REPLAY_LATENCY"),
        (PREFIX + "BACKEND", "magic", "BACKEND"),
        ("PORT", "99999", "PORT"),
        ("LOG_LEVEL", "loud", "LOG_LEVEL is 'loud'; give DEBUG, INFO, WARNING or ERROR"),
        ("HOST", "256.0.0.1", "256.0.0.1"),
    ]
    environments = [environment(**{completions: str(recorded), name: value})
                    for name, value, _ in cases]  # fmt: skip
    failures = [
        (name, value, code, lines)
        for (name, value, named), (code, lines) in zip(
            cases, run_mains("services.generator", environments), strict=True
        )
        if code != 2 or lines.count("\n") != 1 or named not in lines
    ]
    assert failures == []
