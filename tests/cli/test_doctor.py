"""`plumb doctor`: what it finds on a machine, and what it says without a config."""

from pathlib import Path

from tests.cli.commands import plumb


def lines(output: str) -> dict[str, tuple[str, str]]:
    """Mark and text of each line, by subject."""
    found = {}
    for line in output.splitlines():
        mark, rest = line[:6].strip(), line[7:]
        subject, _, text = rest.partition(": ")
        found[subject] = (mark, text)
    return found


def test_a_machine_without_a_config(tmp_path: Path) -> None:
    done = plumb("doctor", folder=tmp_path)
    assert done.code == 0, done.stdout + done.stderr
    checks = lines(done.stdout)
    assert checks["interpreter"][1].startswith("Python 3.")
    assert checks["redis-server"][0] == "ok"
    assert checks["data"][1].startswith("no data sets: `plumb data prepare")
    assert "FAILED" not in done.stdout  # nobody named a Redis or a sandbox


def test_what_is_broken_has_its_remedy(tmp_path: Path) -> None:
    done = plumb(
        *("doctor", "generation.verl.python=/no/such/python"),
        folder=tmp_path,
        REDIS_URL="redis://127.0.0.1:9/0",
        SANDBOX_URLS="http://127.0.0.1:9",
    )
    assert done.code == 1
    checks = lines(done.stdout)
    assert "make install-verl" in checks["verl"][1]
    assert checks["Redis"][0] == "FAILED"
    assert "2 of the checks failed" in done.line
