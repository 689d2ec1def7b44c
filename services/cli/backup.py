"""The commands `plumb backup` and `plumb restore`: ledger and index, in a folder at any URL."""

import hashlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer
from pydantic import BaseModel, ConfigDict, ValidationError
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from services.cli.embedded.append_only import check_complete, explain
from services.cli.embedded.services import base_environment, start_redis
from services.cli.embedded.stack import file_lock, state_folder
from services.cli.embedded.supervisor import GRACE_SECONDS
from shared.artifacts import OutputFolder
from shared.errors import OutputError, ServiceError
from shared.ledger import connect
from shared.ledger.snapshot import Group, groups, restore_group, write_group
from shared.ledger.version import (
    WITHOUT_NUMBER,
    OtherVersionError,
    claim_ledger,
    is_readable,
    records_version,
    refusal,
)
from shared.schemas import describe
from shared.service.settings import RedisSettings, load_settings
from shared.versions import versions_of

VERSION = 1
MANIFEST = "manifest.json"
_INDEX = "index.sqlite"
_PIECE = 2**20

IndexFolder = Annotated[
    Path | None,
    typer.Option(
        "--index", help="The aggregator's index folder; default: PLUMBLINE_INDEX_DIR, if set."
    ),
]
Embedded = Annotated[
    str | None,
    typer.Option(
        "--output", help="Output folder of a run with --embedded, in place of REDIS_URL and index."
    ),
]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    file: str
    bytes: int
    sha256: str


class _GroupFile(_File):
    name: str
    keys: list[str]


class Manifest(BaseModel):
    """The content of a backup. It is written last, so a folder with one is complete.

    ``records``: the version of the records in it, as ``shared.ledger.version`` has it.
    """

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    records: int = WITHOUT_NUMBER
    created_at: float
    plumbline: str
    redis: str
    groups: list[_GroupFile]
    index: _File | None


def backup(
    destination: Annotated[str, typer.Argument(help="Folder or URL; it must have no backup yet.")],
    index: IndexFolder = None,
    output: Embedded = None,
) -> None:
    """Copy all runs of Redis, and the aggregator's index, while they are in use."""
    folder = OutputFolder(destination)
    if folder.exists(MANIFEST):
        raise OutputError(f"{folder.shown} has a backup already; choose another folder")
    folder.check_writable()
    if folder.local:  # the ledger may have addresses with their passwords
        Path(folder.path).mkdir(parents=True, exist_ok=True, mode=0o700)
    with _target(output, index, new=False) as (redis, index_folder), _redis_errors("read"):
        # The index first: its positions in the streams must not be ahead of the streams.
        copied = _copy_index(folder, index_folder) if index_folder else None
        files = [
            _write(folder, f"ledger/{number:06}", group, redis)
            for number, group in enumerate(groups(redis))
        ]
        manifest = Manifest(
            records=records_version(redis),
            created_at=time.time(),
            plumbline=_version(),
            redis=str(redis.info("server")["redis_version"]),
            groups=files,
            index=copied,
        )
    folder.write_json(MANIFEST, manifest.model_dump(mode="json"))
    size = sum(one.bytes for one in files) + (copied.bytes if copied else 0)
    print(f"{_counted(manifest)}, {size} bytes, in {folder.shown}")
    if copied is None:
        print("without an index, which the aggregator builds again (--index FOLDER)")


def restore(
    source: Annotated[str, typer.Argument(help="Folder or URL of a backup.")],
    index: IndexFolder = None,
    output: Embedded = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Into a Redis that has runs: those of the backup replace them."
        ),
    ] = False,
) -> None:
    """Write the runs of a backup into Redis, and the index into its folder."""
    folder = OutputFolder(source)
    manifest = _read_manifest(folder)
    with tempfile.TemporaryDirectory(prefix="plumbline-restore-") as temporary:
        local = _download(folder, manifest, Path(temporary))
        target = _target(output, index, new=True)
        with target as (redis, index_folder), _redis_errors("written"):
            wanted = index_folder if manifest.index else None
            there = {group.name: group.keys for group in groups(redis)}
            _check_target(redis, manifest, wanted, empty=not there, force=force)
            for one in manifest.groups:
                replaced = Group(one.name, sorted({*one.keys, *there.get(one.name, [])}))
                with (local / one.file).open("rb") as file:
                    _restore(redis, manifest, replaced, file)
            claim_ledger(redis)
            if wanted and manifest.index:
                _replace_index(local / manifest.index.file, wanted)
    print(f"restored: {_counted(manifest)}")
    print("start the aggregator; repeat the command of a run that was not finished to resume it")


def _counted(manifest: Manifest) -> str:
    runs = sum(Group(one.name, one.keys).is_run for one in manifest.groups)
    index = "the index" if manifest.index else "no index"
    return f"{runs} runs, {len(manifest.groups) - runs} reward sessions, {index}"


def _version() -> str:
    return versions_of(["plumbline"]).get("plumbline", "unknown")


@contextmanager
def _target(
    output: str | None, index: Path | None, *, new: bool
) -> Iterator[tuple[Redis, Path | None]]:
    """Connect to Redis, or start that of an embedded run, which may be ``new``; find the index."""
    if output is None:
        given = os.environ.get("PLUMBLINE_INDEX_DIR")
        with closing(connect(load_settings(RedisSettings).redis_url)) as redis:
            yield redis, index or (Path(given) if given else None)
        return
    folder = state_folder(OutputFolder(output))
    if not (folder / "redis").is_dir() and not new:
        raise OutputError(f"{folder} has no data of Redis: no run with --embedded was here")
    folder.mkdir(parents=True, exist_ok=True)
    check_complete(folder / "redis", output)
    with file_lock(folder / "lock") as lock:
        (folder / "logs").mkdir(exist_ok=True)
        log = folder / "logs" / "redis.log"
        try:
            child, url = start_redis(folder / "redis", log, base_environment(), lock)
        except ServiceError as error:
            raise explain(folder / "redis", output, error) from None
        try:
            with closing(connect(url)) as redis:
                yield redis, index or folder / "index"
        finally:
            child.stop(GRACE_SECONDS)


@contextmanager
def _redis_errors(done: str) -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise ServiceError(
            f"the ledger cannot be {done}: {error}; it takes a user with all rights, as default has"
        ) from None


# Backup


def _write(folder: OutputFolder, name: str, group: Group, redis: Redis) -> _GroupFile:
    with tempfile.TemporaryFile() as file:
        write_group(redis, group, file)
        file.seek(0)
        written = _upload(folder, name, file.read)
    return _GroupFile(name=group.name, keys=group.keys, **written.model_dump())


def _upload(folder: OutputFolder, name: str, read: Callable[[int], bytes]) -> _File:
    digest, size = hashlib.sha256(), 0
    with folder.replacing(name, "wb") as file:
        while piece := read(_PIECE):
            file.write(piece)
            digest.update(piece)
            size += len(piece)
    return _File(file=name, bytes=size, sha256=digest.hexdigest())


def _copy_index(folder: OutputFolder, index: Path) -> _File | None:
    """Copy the index by SQLite's own online backup, while an aggregator writes it."""
    path = index / _INDEX
    if not path.exists():
        return None
    with tempfile.TemporaryDirectory(prefix="plumbline-backup-") as temporary:
        copy = Path(temporary) / _INDEX
        try:
            with (
                closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as there,
                closing(sqlite3.connect(copy)) as here,
            ):
                there.backup(here)
        except sqlite3.Error as error:
            raise OutputError(
                f"{path} cannot be copied: {error}; without --index the aggregator builds it again"
            ) from None
        with copy.open("rb") as file:
            return _upload(folder, _INDEX, file.read)


# Restore


def _read_manifest(folder: OutputFolder) -> Manifest:
    document = folder.read_json(MANIFEST)
    if document is None:
        raise OutputError(f"{folder.shown} has no {MANIFEST}: no backup, or one that did not end")
    version = document.get("version") if isinstance(document, dict) else None
    if version != VERSION:
        raise OutputError(
            f"{folder.shown} is a backup of version {version!r}, this program reads version "
            f"{VERSION}; restore it with the version of Plumbline that wrote it"
        )
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        raise OutputError(f"{folder.shown}/{MANIFEST} is damaged: {describe(error)}") from None
    if not is_readable(manifest.records):
        what = f"the ledger in {folder.shown}"
        raise OtherVersionError(refusal(what, manifest.records, manifest.plumbline))
    return manifest


def _download(folder: OutputFolder, manifest: Manifest, local: Path) -> Path:
    """Copy all files and compare their checksums, before anything is written elsewhere."""
    for one in [*manifest.groups, *([manifest.index] if manifest.index else [])]:
        path = local / one.file
        if ".." in Path(one.file).parts or not path.is_relative_to(local):
            raise OutputError(f"{folder.shown}/{MANIFEST} names a file outside of the backup")
        folder.download(one.file, path)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != one.sha256:
            raise OutputError(
                f"{folder.shown}/{one.file} is damaged: its SHA-256 is {found[:12]}…, the manifest "
                f"says {one.sha256[:12]}…; nothing was restored"
            )
    return local


def _check_target(
    redis: Redis, manifest: Manifest, index: Path | None, *, empty: bool, force: bool
) -> None:
    for one in manifest.groups:
        group = Group(one.name, one.keys)
        if redis.exists(group.lock):
            raise ServiceError(f"a runner is working on {one.name}; stop it before the restore")
    if force:
        return
    if not empty:
        raise OutputError(
            "this Redis has runs already; restore into an empty one, or use --force, which "
            "replaces those of the backup and leaves the others"
        )
    if index and (index / _INDEX).exists():
        raise OutputError(
            f"{index} has an index already; choose another --index, or use --force to replace it"
        )


def _restore(redis: Redis, manifest: Manifest, group: Group, file: BinaryIO) -> None:
    try:
        restore_group(redis, group, file)
    except ResponseError as error:
        raise ServiceError(
            f"Redis {redis.info('server')['redis_version']} refuses {group.name} of a backup of "
            f"Redis {manifest.redis} ({error}); restore into that version or a later one"
        ) from None
    except (ValueError, KeyError, RuntimeError) as error:
        raise OutputError(f"{group.name} of the backup is damaged: {error}") from None


def _replace_index(copy: Path, folder: Path) -> None:
    """Put the index in its place, while no aggregator uses the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with file_lock(folder / "lock", timeout=0.0):
        for suffix in ("-wal", "-shm"):
            (folder / f"{_INDEX}{suffix}").unlink(missing_ok=True)
        temporary = folder / f".{_INDEX}.restored"
        shutil.copyfile(copy, temporary)
        temporary.replace(folder / _INDEX)
