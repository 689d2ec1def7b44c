"""Damaged files of Redis: what is said of them, and what `plumb repair` does."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from services.cli.embedded import append_only
from services.cli.embedded.services import (
    launch_redis,
    redis_version,
    start_redis,
    wait_for_answer,
)
from shared.errors import OutputError, ServiceError
from shared.ledger import Ledger
from shared.ledger.keys import RunKeys
from shared.schemas import SampleId
from tests.cli.commands import plumb
from tests.shared.ledgers import RUN, enter, generation, problem, verdict


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output folder with the state of a stack whose Redis was killed."""
    output = tmp_path / "out put"
    state = output / ".plumbline"
    with Started(state) as client:
        for number in range(100):
            client.set(f"key {number}", "x" * 50)
    return output


class Started:
    """A client of a server over the state, which is killed at the end."""

    def __init__(self, state: Path) -> None:
        state.mkdir(parents=True, exist_ok=True)
        with (state / "lock").open("a") as lock:
            self._child, url = start_redis(
                state / "redis", state / "redis.log", dict(os.environ), lock.fileno()
            )
        self._client = Redis.from_url(url)
        # What it is killed after is on the disk, however busy that is.
        self._client.config_set("appendfsync", "always")

    def __enter__(self) -> Redis:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._child.process.kill()
        self._child.process.wait()


def latest(output: Path) -> Path:
    found = append_only.latest(output / ".plumbline" / "redis")
    assert found is not None
    return found[0]


def refusal(output: Path) -> str:
    """What a command says whose Redis cannot load its files."""
    state = output / ".plumbline"
    with (state / "lock").open("a") as lock:
        child, url = launch_redis(
            state / "redis", state / "redis.log", dict(os.environ), lock.fileno()
        )
    with pytest.raises(ServiceError) as caught:
        wait_for_answer(child, url)
    return str(append_only.explain(state / "redis", str(output), caught.value))


def test_a_cut_tail_is_loaded_and_named(output: Path) -> None:
    file = latest(output)
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    before = append_only.latest(output / ".plumbline" / "redis")
    with Started(output / ".plumbline") as client:
        assert client.dbsize() == 99
        note = append_only.cut_note(before)
    assert note is not None
    assert str(file) in note
    assert f"of {len(content) - 20} bytes" in note


def test_nothing_is_said_of_an_intact_file(output: Path) -> None:
    before = append_only.latest(output / ".plumbline" / "redis")
    with Started(output / ".plumbline"):
        assert append_only.cut_note(before) is None
    done = plumb("repair", str(output), folder=output)
    assert (done.code, done.stderr) == (0, "")
    assert "intact" in done.stdout


def test_damage_in_the_middle_is_named_and_repaired(output: Path) -> None:
    file = latest(output)
    content = file.read_bytes()
    place = content.index(b"*3", len(content) // 2)
    damaged = content[:place] + b"garbage" + content[place + 7 :]
    file.write_bytes(damaged)
    said = refusal(output)
    assert f"{file} is damaged after" in said
    assert f"of {len(content)} bytes" in said
    assert f"plumb repair '{output}'" in said
    backup = plumb("backup", str(output / "backup"), "--output", str(output), folder=output)
    assert (backup.code, f"{file} is damaged after" in backup.line) == (2, True)
    done = plumb("repair", str(output), folder=output)
    assert done.code == 0, done.stderr
    (kept,) = output.glob(".plumbline/redis.damaged-*")
    assert str(kept) in done.stdout
    assert (kept / file.relative_to(output / ".plumbline" / "redis")).read_bytes() == damaged
    with Started(output / ".plumbline") as client:
        assert 40 < client.dbsize() < 60


def _spoil_base(data: Path) -> None:
    with Started(data.parent) as client:
        client.bgrewriteaof()
        while client.info("persistence")["aof_rewrite_in_progress"]:
            pass
    (base,) = data.glob("appendonlydir/*.base.rdb")
    content = bytearray(base.read_bytes())
    content[len(content) // 2] ^= 255
    base.write_bytes(bytes(content))


def test_a_damaged_base_has_no_repair(output: Path) -> None:
    data = output / ".plumbline" / "redis"
    if not (data / "appendonlydir").exists():
        return  # of Redis 6, which has a single file
    _spoil_base(data)
    said = refusal(output)
    assert "restore a backup" in said
    assert "--force" in said
    done = plumb("repair", str(output), folder=output)
    assert done.code == 2
    assert "cannot be repaired" in done.line


def test_a_command_that_redis_does_not_know(output: Path) -> None:
    """Its form is right, so Redis' own tool finds nothing."""
    file = latest(output)
    content = file.read_bytes()
    place = content.index(b"*3", len(content) // 2)
    named = content.index(b"SET", place)
    file.write_bytes(content[:named] + b"SEU" + content[named + 3 :])
    said = refusal(output)
    assert f"{file} is damaged after {place} of {len(content)} bytes" in said
    assert f"plumb repair '{output}'" in said
    state = output / ".plumbline"
    repaired = append_only.repair(state / "redis", state / "redis.log")
    assert repaired is not None
    with Started(state) as client:
        assert 40 < client.dbsize() < 60


def test_a_damaged_record_is_removed_so_that_the_run_makes_it_again(tmp_path: Path) -> None:
    """Redis has no checksums of values, and loads a file with a changed bit in one."""
    names = ["p1", "p2", "p3"]
    with Started(tmp_path / ".plumbline") as client:
        ledger = Ledger(client, RUN)
        enter(ledger, map(problem, names))
        for name in names:
            ledger.record(generation(name))
            ledger.record_verdict(verdict(generation(name)))
        packed = bytearray(client.hget(RunKeys(RUN).completions, "d1/p1/0"))
        packed[-1] ^= 1
        client.hset(RunKeys(RUN).completions, "d1/p1/0", bytes(packed))
        client.hset(RunKeys(RUN).verdicts, "d1/p2/0", b'{"dataset": "d1')
        client.hset(RunKeys(RUN).problems, "d1/p3", b"x")
    done = plumb("repair", str(tmp_path), folder=tmp_path)
    assert done.code == 0, done.stderr
    assert "a damaged record of d1/p1/0 was removed" in done.stdout
    assert "a damaged record of d1/p3 was removed" in done.stdout
    with Started(tmp_path / ".plumbline") as client:
        ledger = Ledger(client, RUN)
        assert [*ledger.completed()] == [SampleId("d1", "p3")]
        assert ledger.problem("d1", "p3") is None
        assert [one.problem_id for one in ledger.verdicts([*ledger.completed()])] == ["p3"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``output``, with transactions."""
    output = tmp_path_factory.mktemp("filled")
    with Started(output / ".plumbline") as client:
        for number in range(50):
            with client.pipeline(transaction=True) as pipe:
                pipe.set(f"key {number}", "x" * 20).hset("samples", str(number), "y" * 20)
                pipe.execute()
    return output


def _cut(content: bytes, place: int) -> bytes:
    return content[:place]


def _flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def _lose(content: bytes, place: int) -> bytes:
    return content[:place] + content[place + 211 :]


@settings(max_examples=20, deadline=None)
@given(damage=st.sampled_from([_cut, _flip, _lose]), place=st.floats(0.05, 0.999))
def test_no_damage_loses_writes_without_a_word(
    filled: Path, damage: Callable[[bytes, int], bytes], place: float
) -> None:
    """But for a bit of a name or value, which have no checksum, and whole writes at the end."""
    output = filled.with_name("damaged")
    shutil.rmtree(output, ignore_errors=True)
    shutil.copytree(filled, output)
    state, file = output / ".plumbline", latest(output)
    content = file.read_bytes()
    file.write_bytes(damage(content, int(place * len(content))))
    before = append_only.latest(state / "redis")
    try:
        with Started(state) as client:
            whole = client.dbsize() == 51 and client.hlen("samples") == 50
            between = damage is _cut and content[file.stat().st_size :].startswith(b"*1\r\n")
            assert whole or between or damage is _flip or append_only.cut_note(before)
    except ServiceError as error:
        said = str(append_only.explain(state / "redis", str(output), error))
        assert str(file) in said
        assert f"plumb repair {output}" in said
        assert append_only.repair(state / "redis", state / "redis.log") is not None
        # Redis may find more damage than redis-check-aof; it does not start then.
        with suppress(ServiceError), Started(state) as client:
            assert client.dbsize() <= 51


# Of Redis 7, which has a manifest; they are never loaded here.


_BASE, _WRITES = "appendonly.aof.3.base.rdb", "appendonly.aof.5.incr.aof"
_LINES = f"file {_BASE} seq 3 type b\nfile {_WRITES} seq 5 type i\n"
_LEFT_OUT = "does not name"


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "redis" / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / _BASE).write_bytes(b"x" * 300)
    (folder / _WRITES).write_bytes(b"y")
    (folder / "appendonly.aof.manifest").write_text(_LINES)
    return folder


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (None, "is missing beside"),
        ("", _LEFT_OUT),
        ("# nothing\n", _LEFT_OUT),
        ("\0" * 80, _LEFT_OUT),
        (_LINES.splitlines(keepends=True)[0], f"{_LEFT_OUT} {_WRITES}"),
        (_LINES.splitlines(keepends=True)[1], f"{_LEFT_OUT} {_BASE}"),
        (_LINES.replace("appendonly.aof.5", "appendonly.anf.5"), f"{_LEFT_OUT} {_WRITES}"),
    ],
)
def test_files_that_the_manifest_does_not_name_are_not_ignored(
    parts: Path, manifest: str | None, said: str
) -> None:
    (parts / "appendonly.aof.manifest").unlink()
    if manifest is not None:
        (parts / "appendonly.aof.manifest").write_text(manifest)
    with pytest.raises(ServiceError, match="plumb repair out") as caught:
        append_only.check_complete(parts.parent, "out")
    assert said in str(caught.value)
    repaired = append_only.repair(parts.parent, parts / "no.log")
    assert repaired is not None
    assert repaired[0] is None
    assert (parts / "appendonly.aof.manifest").read_text() == _LINES


def test_what_a_killed_rewrite_leaves_is_no_damage(parts: Path) -> None:
    (parts / "appendonly.aof.4.base.rdb").write_bytes(b"x" * 300)
    (parts / "appendonly.aof.4.incr.aof").write_bytes(b"y")
    (parts / "appendonly.aof.6.incr.aof").touch()
    _check_but_for_the_version(parts.parent)
    first = parts.parent / "first"
    first.mkdir()
    (first / "appendonlydir").mkdir()
    (first / "appendonlydir" / "appendonly.aof.1.base.rdb").write_bytes(b"x" * 88)
    append_only.check_complete(first, "out")


def _check_but_for_the_version(data: Path) -> None:
    if redis_version() >= 7:
        append_only.check_complete(data, "out")
        return
    with pytest.raises(ServiceError, match="put the later redis-server on the PATH"):
        append_only.check_complete(data, "out")


def test_a_program_that_does_not_tell_its_version_is_not_taken_for_an_old_one(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "redis-server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ncat\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert redis_version() == 0
    append_only.check_complete(parts.parent, "out")


def test_which_of_two_bases_counts_is_not_guessed(parts: Path) -> None:
    (parts / "appendonly.aof.manifest").unlink()
    (parts / "appendonly.aof.4.base.rdb").write_bytes(b"x" * 300)
    with pytest.raises(OutputError, match="which of"):
        append_only.repair(parts.parent, parts / "no.log")


def test_a_base_without_a_byte(parts: Path) -> None:
    (parts / _BASE).write_bytes(b"")
    with pytest.raises(ServiceError, match="is empty, and had data"):
        append_only.check_complete(parts.parent, "out")
    with pytest.raises(OutputError, match="cannot be repaired"):
        append_only.repair(parts.parent, parts / "no.log")


def test_a_folder_without_a_stack(tmp_path: Path) -> None:
    done = plumb("repair", str(tmp_path), folder=tmp_path)
    assert done.code == 2
    assert "no run with --embedded was here" in done.line
