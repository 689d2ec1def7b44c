import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from shared.artifacts import OutputFolder
from shared.errors import OutputError
from shared.files import remove_abandoned
from shared.schemas import Generation
from tests.shared.ledgers import generation


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_exception_inside_leaves_the_old_file_whole(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))
    folder.write_jsonl("x.jsonl", [generation("old")])
    before = (tmp_path / "x.jsonl").read_bytes()

    def records() -> Iterator[Generation]:
        yield from (generation(f"p{i}", "x" * 1000) for i in range(1000))
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        folder.write_jsonl("x.jsonl", records())
    assert (tmp_path / "x.jsonl").read_bytes() == before
    assert names(tmp_path) == ["x.jsonl"]


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))
    folder.write_jsonl("x.jsonl", [generation("old")])
    seen = []

    def records() -> Iterator[Generation]:
        for i in range(100):
            yield generation(f"p{i}")
            seen.append((tmp_path / "x.jsonl").read_text().count("\n"))

    folder.write_jsonl("x.jsonl", records())
    assert set(seen) == {1}
    assert (tmp_path / "x.jsonl").read_text().count("\n") == 100


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*/file/out/x\.json: Not a directory"):
        OutputFolder(str(tmp_path / "file" / "out")).write_json("x.json", {})


def test_a_full_disk(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path))

    def records() -> Iterator[Generation]:
        yield generation()
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match=r"x\.jsonl: No space left on device"):
        folder.write_jsonl("x.jsonl", records())
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [b"{", b"", b"\xff", b"nul"])
def test_reading_what_is_not_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(OutputError, match=r"x\.json cannot be read"):
        OutputFolder(str(tmp_path)).read_json("x.json")


def test_a_folder_in_memory() -> None:
    root = f"/{uuid.uuid4().hex}/out"
    folder = OutputFolder(f"memory:/{root}")
    assert not folder.local
    assert folder.read_json("x.json") is None
    folder.write_json("x.json", {"a": 1})
    folder.write_json("x.json", {"a": 2})
    folder.write_jsonl("x.jsonl", [generation()])
    assert folder.read_json("x.json") == {"a": 2}
    memory = fsspec.filesystem("memory")
    assert sorted(memory.ls(root, detail=False)) == [f"{root}/x.json", f"{root}/x.jsonl"]
    assert json.loads(memory.cat(f"{root}/x.jsonl"))["problem_id"] == "p1"
    with pytest.raises(ValueError, match="JSON"):
        folder.write_json("x.json", float("inf"))
    assert folder.read_json("x.json") == {"a": 2}
    folder.remove(["x.json"])
    assert memory.ls(root, detail=False) == [f"{root}/x.jsonl"]


# Temporary files of the killed are removed, and nothing else


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
