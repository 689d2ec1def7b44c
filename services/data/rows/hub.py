"""Rows of Hugging Face hub data sets, pinned to a commit.

The files of a split are downloaded into the hub's cache and read like local ones: a split costs
only its own files, and cached files are read without a network.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils.tqdm import disable_progress_bars
from pydantic import TypeAdapter, ValidationError

from services.data.config import HubSource
from services.data.rows import Rows, local
from shared.errors import DataError, data_error
from shared.files import write_text

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT = 30.0  # seconds
_ENDINGS = (".parquet", ".json", ".jsonl", ".json.gz", ".jsonl.gz")
_LISTING = TypeAdapter(list[str])


def rows(source: HubSource, columns: Sequence[str], *, offline: bool) -> Rows:
    """Read a split row by row, in the order of its files.

    Args:
        source: The data set.
        columns: The fields to yield; a row may lack some.
        offline: Use only the cache, as ``HF_HUB_OFFLINE`` does.

    Raises:
        DataError: While iterating: a file is unavailable or unreadable; one line with the cause.
    """
    commit = resolve_revision(source, offline=offline)
    pinned = source.model_copy(update={"revision": commit})
    for name in _split_files(pinned, offline=offline):
        file = _download(pinned, name, offline=offline)
        for place, fields in local.rows(file, columns):
            yield f"{_place(pinned)}/{name}{place.removeprefix(file)}", fields


def resolve_revision(source: HubSource, *, offline: bool) -> str:
    """Resolve the source's revision to a commit, which a branch or tag names now.

    Raises:
        DataError: The data set or revision does not exist, or the hub cannot be reached.
    """
    if _COMMIT.fullmatch(source.revision):
        return source.revision
    if offline or constants.HF_HUB_OFFLINE:
        raise data_error(_place(source), "offline, and the revision is not a commit; name one")
    with hub_errors(_place(source)):
        info = HfApi().dataset_info(source.path, revision=source.revision, timeout=_TIMEOUT)
        return str(info.sha)


def _place(source: HubSource) -> str:
    return f"{source.path}@{source.revision}"


def _download(source: HubSource, name: str, *, offline: bool) -> str:
    """Download a file of the repository at a commit, unless it is cached."""
    with hub_errors(f"{_place(source)}/{name}"):
        disable_progress_bars()
        return hf_hub_download(
            source.path,
            name,
            repo_type="dataset",
            revision=source.revision,
            local_files_only=offline,
        )


def _split_files(source: HubSource, *, offline: bool) -> list[str]:
    """List the files of the source's split at a commit; the answer is cached beside the files."""
    folder = Path(constants.HF_HUB_CACHE)
    folder /= repo_folder_name(repo_id=source.path, repo_type="dataset")
    name = quote(f"{source.name or ''}@{source.split}", safe="")
    path = folder / "listings" / source.revision / f"{name}.json"
    try:
        return _LISTING.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        if offline or constants.HF_HUB_OFFLINE:
            cause = f"offline, and split {source.split!r} is not in the cache"
            raise data_error(_place(source), f"{cause}; run once with a network") from None
    with hub_errors(_place(source)):
        files = _files_of_split(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, _LISTING.dump_json(files).decode())
    return files


def _files_of_split(source: HubSource) -> list[str]:
    """Request the files of a split; ``datasets`` supports every way to declare splits."""
    import datasets  # slow

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    # With this prefix, datasets never takes it for a local folder.
    path = f"hf://datasets/{source.path}"
    # An empty cache, because ``datasets`` would fall back to old entries if the hub fails.
    with TemporaryDirectory() as scratch:
        builder = datasets.load_dataset_builder(
            path,
            source.name,
            revision=source.revision,
            cache_dir=scratch,
            download_config=datasets.DownloadConfig(cache_dir=scratch),
        )
    splits = {str(split): files for split, files in (builder.config.data_files or {}).items()}
    if source.split not in splits:
        cause = f"no split {source.split!r}; choose one of: {', '.join(splits) or 'none'}"
        raise data_error(_place(source), cause)
    prefix = f"{path}@{source.revision}/"
    names = [str(file).removeprefix(prefix) for file in splits[source.split]]
    for name in names:
        if not name.endswith(_ENDINGS):
            cause = f"{name!r} is neither parquet nor JSON; convert it to a local file"
            raise data_error(_place(source), cause)
    return names


_LOGIN = "log in with HF_TOKEN"
# In order of priority: GatedRepoError, for example, is also a RepositoryNotFoundError.
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (GatedRepoError, f"needs a login; accept its terms on the hub and {_LOGIN}"),
    (RepositoryNotFoundError, f"no such data set, or it is private; check the name or {_LOGIN}"),
    (RevisionNotFoundError, "no such revision; name a commit, a branch or a tag"),
    (HFValidationError, "not a data set's name; write OWNER/NAME"),
    (LocalEntryNotFoundError, "the hub cannot be reached, and it is not in the cache"),
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
        summary = " ".join(str(error).split())[:300]
        causes = (cause for kind, cause in _CAUSES if isinstance(error, kind))
        advice = "check it on the hub, the network and the space in the cache"
        cause = next(causes, f"cannot be fetched ({type(error).__name__}: {summary}); {advice}")
        raise data_error(place, cause) from None
