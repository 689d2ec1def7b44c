"""The remedies of ``make up``, with a stand-in of Docker; needs no engine."""

import os
import subprocess
from pathlib import Path

from tests.compose.stack import ROOT

# `compose up` prints $UP and ends with $RC; one container is in the state $STATE.
_DOCKER = """\
#!/bin/sh
case "$*" in
  "compose up -d") echo "$UP"; exit "$RC" ;;
  "compose ps -q") echo 0123 ;;
  inspect*Name*) echo /plumbline-judge-1 ;;
  inspect*) echo "$STATE" ;;
  logs*) echo '{"reason": "the ledger has version 9"}' ;;
esac
"""


def made_up(folder: Path, *, up: str = "", code: int = 0, state: str = "healthy") -> list[str]:
    """The lines of ``make up`` itself; it fails if there are any."""
    (folder / "docker").write_text(_DOCKER)
    (folder / "docker").chmod(0o755)
    done = subprocess.run(
        [str(ROOT / "packaging/up.sh"), "docker", "compose"],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "UP": up, "RC": str(code), "STATE": state},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines()
    assert (done.returncode != 0) == bool(lines)
    return lines


def test_each_failure_has_its_remedy(tmp_path: Path) -> None:
    for printed, remedy in [
        ('could not select device driver "nvidia" with capabilities', "COMPOSE_FILE"),
        ("Bind for 127.0.0.1:8081 failed: port is already allocated", "AGGREGATOR_PORT"),
        ("listen tcp4 127.0.0.1:8081: bind: address already in use", "AGGREGATOR_PORT"),
        ("pull access denied for localhost/plumbline/judge", "make images"),
        ("dial tcp: lookup registry-1.docker.io: no such host", "check the network"),
        ("something else", "does not start"),
    ]:
        (line,) = made_up(tmp_path, up=printed, code=1)
        assert remedy in line, printed


def test_a_service_that_is_not_ready_says_why(tmp_path: Path) -> None:
    (line,) = made_up(tmp_path, state="unhealthy")
    assert "plumbline-judge-1 is not ready" in line
    assert "the ledger has version 9" in line


def test_nothing_is_said_of_a_healthy_stack(tmp_path: Path) -> None:
    assert made_up(tmp_path) == []
