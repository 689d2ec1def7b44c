"""Removal of a workspace, regardless of a program's changes to its folder."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from services.cli.embedded.services import ChildProcess
from services.sandbox.workspace import PREFIX, Workspace, claim, remove_trees
from tests.processes import service_process
from tests.sandbox.conftest import Sandbox, until


def deep(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(1100):
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


def test_names_that_programs_made_lead_nowhere(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("stays")
    (tmp_path / f"{PREFIX}link").symlink_to(precious)
    (tmp_path / f"{PREFIX}file").write_text("not a folder")
    os.mkfifo(tmp_path / f"{PREFIX}pipe")
    inside = tmp_path / f"{PREFIX}folder"
    inside.mkdir()
    (inside / "link").symlink_to(precious)
    kept = {
        f".plumbline-sandbox-{os.geteuid()}",
        f"{PREFIX}link",
        f"{PREFIX}file",
        f"{PREFIX}pipe",
        "precious",
    }
    if os.geteuid() == 0:
        (tmp_path / f"{PREFIX}user").mkdir()
        os.chown(tmp_path / f"{PREFIX}user", 12345, 12345)
        kept.add(f"{PREFIX}user")
    remove_trees(claim(tmp_path)[1])
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert (precious / "file").read_text() == "stays"


async def test_a_sandbox_removes_the_folders_of_killed_ones_alone(
    open_folder: Path, tmp_path: Path, session: ClientSession
) -> None:
    root = open_folder
    settings = {"PLUMBLINE_SANDBOX_TEMP_ROOT": str(root), "PLUMBLINE_SANDBOX_CONCURRENCY": "1"}

    def workspaces() -> set[Path]:
        return set(root.glob(f"{PREFIX}*"))

    async def works(url: str) -> bool:
        answer = await Sandbox(session, url).run("print(6 * 7)")
        return bool(answer["run_result"]["stdout"] == "42\n")

    def server(name: str) -> AbstractContextManager[tuple[ChildProcess, str]]:
        files = tmp_path / f"{name}.log", tmp_path / f"{name}.port"
        return service_process("services.sandbox", *files, **settings)

    with server("killed") as (process, url):
        assert await works(url)
        left = workspaces()
        assert process.process is not None
        process.process.kill()
        process.process.wait()
    assert len(left) == 1
    with server("next") as (_, alive):
        assert await works(alive)
        await until(lambda: not left & workspaces())
        own = workspaces()
        with server("beside") as (_, url):
            assert await works(url)
            assert own <= workspaces()
            assert await works(alive)
