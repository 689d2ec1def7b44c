"""Rows of Hugging Face hub data sets, pinned to a commit.

The files of a split are downloaded unchanged and read like local ones: a split costs only its own
files, and cached files are read without a network.
"""

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from huggingface_hub import HfApi, constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.data.config import HubSource
from services.data.rows import Rows, local
from shared.errors import DataError, data_error
from shared.files import write_text

_TIMEOUT = 30.0  # seconds


def rows(
    source: HubSource, columns: Sequence[str] | None, cache: Path | None, *, offline: bool
) -> Rows:
    """Read a split row by row, in the order of its files.

    Args:
        source: The data set.
        columns: The fields to yield; a row may lack some. None for all.
        cache: Folder for downloaded files; None for the default cache (``HF_HOME``).
        offline: Use only the cache, as ``HF_HUB_OFFLINE`` does.

    Raises:
        DataError: While iterating: a file is unavailable or unreadable; one line with the cause.
    """
    offline = offline or constants.HF_HUB_OFFLINE
    commit = resolve_revision(source, offline, cache)
    pinned = source.model_copy(update={"revision": commit})
    for name in split_files(pinned, cache, offline=offline):
        file = str(local_file(pinned, name, cache, offline=offline))
        for place, fields in local.rows(file, columns):
            yield f"{source_name(pinned)}/{name}{place.removeprefix(file)}", fields


def resolve_revision(source: HubSource, offline: bool, cache: Path | None = None) -> str:
    """Resolve the source's revision to a commit; offline, to the cached one.

    Raises:
        DataError: The data set or revision does not exist, or the hub cannot be reached.
    """
    if is_commit(source.revision):
        return source.revision
    path = _reference(source, cache)
    if offline or constants.HF_HUB_OFFLINE:
        return _last_commit(source, path)
    with hub_errors(source_name(source)):
        info = HfApi().dataset_info(source.path, revision=source.revision, timeout=_TIMEOUT)
        commit = info.sha or ""
        if not is_commit(commit):
            raise data_error(
                source_name(source), "the hub returned no commit; set the revision to a commit"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, commit)
    return commit


def _reference(source: HubSource, cache: Path | None) -> Path:
    """Path of a branch's or tag's commit in the cache, as in huggingface_hub."""
    revision = PurePosixPath(source.revision)
    if revision.is_absolute() or ".." in revision.parts:
        raise data_error(
            source_name(source), "not a valid revision; name a commit, a branch or a tag"
        )
    with hub_errors(source_name(source)):
        return repository_folder(source, cache) / "refs" / revision


def _last_commit(source: HubSource, path: Path) -> str:
    try:
        commit = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    if not is_commit(commit):
        cause = "offline, and the revision's commit is not in the cache; name a commit"
        raise data_error(source_name(source), cause)
    return commit


_COMMIT = re.compile(r"[0-9a-f]{40}")
_ENDINGS = (".parquet", ".arrow", ".json", ".jsonl", ".json.gz", ".jsonl.gz")


class _Listing(BaseModel):
    """Files of one split at one commit, in order."""

    model_config = ConfigDict(frozen=True)

    files: list[str] = Field(min_length=1)


def is_commit(revision: str) -> bool:
    """Whether a revision is a full commit hash, whose files never change."""
    return _COMMIT.fullmatch(revision) is not None


def source_name(source: HubSource) -> str:
    """Name of the data set in errors and row places."""
    return f"{source.path}@{source.revision}"


def repository_folder(source: HubSource, cache: Path | None) -> Path:
    """Path of the data set in the cache; None means the default cache."""
    name = repo_folder_name(repo_id=source.path, repo_type="dataset")
    return (cache or Path(constants.HF_HUB_CACHE)) / name


def split_files(source: HubSource, cache: Path | None, *, offline: bool) -> list[str]:
    """List the files of the source's split; its revision must be a commit.

    The hub's answer is cached, because it never changes for a commit.

    Raises:
        DataError: The configuration or split does not exist, its files have an unsupported format,
            or the hub cannot be reached.
    """
    name = "default" if source.name is None else f"name={source.name}"
    folder = repository_folder(source, cache) / "listings" / source.revision
    path = folder / f"{quote(name, safe='=')}.{quote(source.split, safe='')}.json"
    try:
        return _Listing.model_validate_json(path.read_bytes()).files
    except (OSError, ValidationError):
        if offline:
            cause = f"offline, and split {source.split!r} is not in the cache"
            raise data_error(source_name(source), f"{cause}; run once with a network") from None
    with hub_errors(source_name(source)):
        files = _select_files(source, _files_by_split(source))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, _Listing(files=files).model_dump_json())
    return files


def local_file(source: HubSource, name: str, cache: Path | None, *, offline: bool) -> Path:
    """Download a file of the repository unless it is cached.

    Raises:
        DataError: The file cannot be downloaded.
    """
    # Unlike hf_hub_download, this never uses the network.
    known = try_to_load_from_cache(
        source.path, name, cache, revision=source.revision, repo_type="dataset"
    )
    if isinstance(known, str):
        return Path(known)
    place = f"{source_name(source)}/{name}"
    if offline:
        cause = "offline, and it is not in the cache; run once with a network"
        raise data_error(place, cause)
    with hub_errors(place):
        _disable_output()
        return Path(
            hf_hub_download(
                source.path, name, repo_type="dataset", revision=source.revision, cache_dir=cache
            )
        )


def _files_by_split(source: HubSource) -> dict[str, list[str]]:
    """Request the files of each split; ``datasets`` supports every way to declare splits."""
    import datasets  # slow

    _disable_output()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    # With this prefix, datasets never takes it for a local folder.
    path = f"hf://datasets/{source.path}"
    # An empty cache, because ``datasets`` would fall back to old entries if the hub fails.
    with TemporaryDirectory() as scratch:
        config = datasets.DownloadConfig(cache_dir=scratch)
        load = partial(datasets.load_dataset_builder, cache_dir=scratch, download_config=config)
        try:
            builder = load(path, source.name, revision=source.revision)
        except ValueError as error:
            names = datasets.get_dataset_config_names(
                path, revision=source.revision, download_config=config
            )
            raise _wrong_configuration(source, names, error) from None
    prefix = f"{path}@{source.revision}/"
    found: dict[str, Any] = builder.config.data_files or {}
    return {
        str(split): [file.removeprefix(prefix) for file in files] for split, files in found.items()
    }


def _wrong_configuration(source: HubSource, names: list[str], error: ValueError) -> Exception:
    known = ", ".join(names)
    if source.name is None and len(names) > 1:
        return data_error(source_name(source), f"has several configurations; name one of {known}")
    if source.name is not None and source.name not in names:
        cause = f"no configuration {source.name!r}"
        return data_error(source_name(source), f"{cause}; name one of {known}")
    return error


def _select_files(source: HubSource, by_split: dict[str, list[str]]) -> list[str]:
    files = by_split.get(source.split)
    if not files:
        cause = f"no split {source.split!r}"
        raise data_error(
            source_name(source), f"{cause}; choose one of: {', '.join(by_split) or 'none'}"
        )
    for name in files:
        if not name.endswith(_ENDINGS):
            cause = f"{name!r} is neither parquet, Arrow nor JSON; convert it to a local file"
            raise data_error(source_name(source), cause)
    return files


def _disable_output() -> None:
    """Disable progress bars and warnings; errors are reported as exceptions."""
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    logging.set_verbosity(40)  # ERROR


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_LOGIN = "log in with HF_TOKEN"
# In order of priority: GatedRepoError, for example, is also a RepositoryNotFoundError.
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (GatedRepoError, f"needs a login; accept its terms on the hub and {_LOGIN}"),
    (
        RepositoryNotFoundError,
        f"no such data set, or it is private; check the name or {_LOGIN}",
    ),
    (RevisionNotFoundError, "no such revision; name a commit, a branch or a tag"),
    (HFValidationError, "not a data set's name; write OWNER/NAME"),
    (OfflineModeIsEnabled, "offline, and it is not in the cache; run once with a network"),
)


@contextmanager
def hub_errors(place: str) -> Iterator[None]:
    """Convert any error of the hub's libraries into a DataError that names ``place``."""
    try:
        yield
    except DataError:
        raise
    # The libraries raise their own exceptions, those of HTTP clients and builtin ones, nested in
    # each other; the block does nothing but use the hub.
    except Exception as error:  # noqa: BLE001
        raise data_error(place, _cause(error)) from None


def _cause(error: BaseException) -> str:
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, OSError) and one.errno in _NO_SPACE:
            return f"no space left for it ({one.strerror}); free some space or use another cache"
    for kind, cause in _CAUSES:
        if any(isinstance(one, kind) for one in chain):
            return cause
    for one in chain:
        if isinstance(one, HfHubHTTPError) and one.response is not None:
            return f"the hub returned HTTP {one.response.status_code}; try again later"
    for one in chain:
        if _is_network(one):
            return f"the connection to the hub failed ({_summarize(one)}); check the network"
    if isinstance(error, OSError) and error.filename:
        return f"the cache cannot be used ({error.strerror}: {error.filename}); check the folder"
    return f"cannot be downloaded ({_summarize(error)}); check it on the hub, or {_LOGIN}"


def _is_network(error: BaseException) -> bool:
    # datasets raises Python's own when the hub cannot be reached. httpx by module name, because it
    # is only an indirect dependency.
    return isinstance(error, ConnectionError) or type(error).__module__.startswith("httpx")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _summarize(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
