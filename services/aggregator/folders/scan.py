"""Search for runs below a folder: which there are, and whether their files have changed."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import fsspec

from shared import artifacts
from shared.errors import DataError, OutputError, reading
from shared.redaction import redact_address

# Files that the index is made from; the others of a run may change.
_READ = (*artifacts.FILES, artifacts.CASES)
# Folders in a run's folder in which there is no run, but many files.
_WITHOUT_RUNS = {artifacts.QA_LOGS, artifacts.WANDB, "logs", "redis"}
# What filesystems call the version of a file.
_VERSION = ("mtime", "ino", "LastModified", "last_modified", "ETag", "etag", "updated", "created")


class NoFolderError(DataError):
    """The folder does not exist, or not yet."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A folder with a ``run.json``.

    Attributes:
        folder: Its URL.
        stamp: Digest of names, sizes and versions of the run's files.
        changed_at: Unix time of the last change of a file; 0 if the filesystem does not tell.
    """

    folder: str
    stamp: str
    changed_at: float


def find_runs(url: str) -> Iterator[FoundRun]:
    """Yield the runs below a folder, which may be a run's folder itself.

    Hidden folders and links that lead into the folder itself are left out.

    Raises:
        OutputError: No filesystem is installed for the URL.
        NoFolderError: While iterating: it does not exist.
        DataError: While iterating: it cannot be listed.
    """
    try:
        fs, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise OutputError(f"{redact_address(url)}: {error}") from None
    with reading(url):
        fs.invalidate_cache()
        if not fs.isdir(root):
            raise NoFolderError(f"{redact_address(url)}: no such folder")
        fs.ls(root)  # the walk leaves out what cannot be listed
        found = fs.walk(root, detail=True)
        for path, folders, files in found:
            if artifacts.RUN in files:
                below = str(path)[len(str(root)) :].strip("/")
                yield _found(f"{url.rstrip('/')}/{below}" if below else url, files)
            for name in _left_out(root, folders, in_run=artifacts.RUN in files):
                del folders[name]


def _found(folder: str, files: Mapping[str, Mapping[str, object]]) -> FoundRun:
    infos = [(name, files[name]) for name in _READ if name in files]
    versions = [
        (name, info.get("size"), *(str(info.get(key)) for key in _VERSION)) for name, info in infos
    ]
    times = [info.get("mtime") for _, info in infos]
    return FoundRun(
        folder,
        hashlib.sha256(repr(versions).encode()).hexdigest(),
        max((one for one in times if isinstance(one, float)), default=0.0),
    )


def _left_out(
    root: str, folders: Mapping[str, Mapping[str, object]], *, in_run: bool
) -> Iterable[str]:
    return [
        name
        for name, info in folders.items()
        if name.startswith(".")
        or (in_run and name in _WITHOUT_RUNS)
        or (info.get("islink") and _leads_back(root, str(info["name"])))
    ]


def _leads_back(root: str, link: str) -> bool:
    """Whether a link leads to a folder that is searched anyway, or to one around it."""
    start, end = Path(root).resolve(), Path(link).resolve()
    return end.is_relative_to(start) or start.is_relative_to(end)
