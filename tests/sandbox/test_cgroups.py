"""Control groups of slots: where they are made, and that they do not stay."""

import os
from pathlib import Path

import pytest

from services.sandbox.cgroups import PREFIX, CpuGroup

V1 = "30 20 0:26 {root} {mount} rw - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "31 20 0:27 {root} {mount} rw - cgroup2 cgroup2 rw\n"


def parent(folder: Path, path: str, counter: str) -> Path:
    """A stand-in for a hierarchy: in it, counters appear by themselves."""
    made = folder / path
    made.mkdir(parents=True, exist_ok=True)
    (made / "cgroup.procs").touch()
    return made


@pytest.mark.parametrize(
    ("text", "own", "root", "place"),
    [
        (V1, "4:cpu,cpuacct:/service\n", "/", "service"),
        (V2, "0::/service\n", "/", "service"),
        (V2, "0::/docker/1/service\n", "/docker/1", "service"),
        (V2, "0::/\n", "/docker/1", "."),
        (V2, "0::/../other\n", "/docker/1", "."),
    ],
)
def test_groups_are_made_below_the_servers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, own: str, root: str, place: str
) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    wanted = parent(folder, place, "")
    made: list[Path] = []
    mkdir = Path.mkdir

    def with_counters(path: Path) -> None:
        mkdir(path)
        made.append(path)
        for name in ("cpuacct.usage", "cpu.stat"):
            (path / name).write_text("0\n")

    monkeypatch.setattr(Path, "mkdir", with_counters)
    mount = str(folder).replace(" ", "\\040")
    group = CpuGroup.create(text.format(root=root, mount=mount), own)
    assert group is not None
    assert made[0].parent.resolve() == wanted.resolve()
    os.close(group.usage)


def test_groups_of_dead_servers_are_removed(tmp_path: Path) -> None:
    dead, alive = (tmp_path / f"{PREFIX}{pid}-0" for pid in (2**22 + 1, os.getpid()))
    dead.mkdir()
    alive.mkdir()
    CpuGroup.create(V2.format(root="/", mount=tmp_path), "0::/\n")
    assert (dead.exists(), alive.exists()) == (False, True)
