"""Removal of a workspace, regardless of a program's changes to its folder."""

import os
from pathlib import Path

import pytest

from services.sandbox.workspace import Workspace


def deep(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(1500):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(here)


def locked(folder: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for path in (inner, inner.parent, folder):
        path.chmod(0)


def linked(folder: Path) -> None:
    (folder / "up").symlink_to("..")
    (folder / "loop").symlink_to("loop")


@pytest.mark.parametrize("mess", [deep, locked, linked])
def test_a_folder_is_removed_and_nothing_beside_it(tmp_path: Path, mess: object) -> None:
    beside = tmp_path / "beside"
    beside.write_text("stays")
    workspace = Workspace.create(tmp_path, None)
    mess(workspace.path)  # type: ignore[operator]
    workspace.remove()
    assert not workspace.path.exists()
    assert beside.read_text() == "stays"
