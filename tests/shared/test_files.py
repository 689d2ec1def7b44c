"""Temporary files of the killed are removed, and nothing else."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from shared.files import remove_abandoned

_KILLED = """
import os, signal, sys
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
from shared.files import atomic_write
with atomic_write(LocalFileSystem(), sys.argv[1]) as file:
    file.write("half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    written = tmp_path / "report.html"
    written.write_text("whole")
    done = subprocess.run([sys.executable, "-c", _KILLED, str(written)])
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    remove_abandoned(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["whole"]


def test_files_of_the_living_of_others_and_of_other_machines_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    host, dead = socket.gethostname(), ended.pid
    names = [
        f".run.json.{host}.{os.getpid()}.tmp",  # being written
        f".run.json.{host}.1.tmp",  # of another user's process
        f".run.json.elsewhere.{dead}.tmp",
        f".run.json.{host}.{dead}",
        f"notes.{host}.{dead}.tmp",
        f".run.json.{host}.{dead}x.tmp",
        f".run.json.{host}.99999999999999.tmp",
    ]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / f".folder.{host}.{dead}.tmp").mkdir()
    remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*names, f".folder.{host}.{dead}.tmp"}
    remove_abandoned(tmp_path / "missing")
