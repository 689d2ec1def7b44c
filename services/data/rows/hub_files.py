"""Which files of a data set's repository make a split, and where they are on this machine."""

import re
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.file_download import repo_folder_name
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.data.config import HubSource
from services.data.rows.hub_errors import asking
from shared.files import write_text
from shared.reading import data_error

_COMMIT = re.compile(r"[0-9a-f]{40}")
_ENDINGS = (".parquet", ".arrow", ".json", ".jsonl", ".json.gz", ".jsonl.gz")


class _Listing(BaseModel):
    """The files of one split at one commit, in their order."""

    model_config = ConfigDict(frozen=True)

    files: list[str] = Field(min_length=1)


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit hash, which always stands for the same files."""
    return _COMMIT.fullmatch(revision) is not None


def where(source: HubSource) -> str:
    """What errors and places call the data set."""
    return f"{source.path}@{source.revision}"


def repository_folder(source: HubSource, cache: Path | None) -> Path:
    """The data set's folder in the cache, the hub's own one where ``cache`` is None."""
    name = repo_folder_name(repo_id=source.path, repo_type="dataset")
    return (cache or Path(constants.HF_HUB_CACHE)) / name


def split_files(source: HubSource, cache: Path | None, *, offline: bool) -> list[str]:
    """The names of the files of the source's split; its revision is a commit.

    What the hub says is kept in the cache, for it cannot change.

    Raises:
        DataError: There is no such configuration or split, its files have a form that is not read,
            or the hub cannot be asked.
    """
    name = "default" if source.name is None else f"name={source.name}"
    folder = repository_folder(source, cache) / "listings" / source.revision
    path = folder / f"{quote(name, safe='=')}.{quote(source.split, safe='')}.json"
    try:
        return _Listing.model_validate_json(path.read_bytes()).files
    except (OSError, ValidationError):
        if offline:
            cause = f"offline, and split {source.split!r} is not in the cache"
            raise data_error(where(source), f"{cause}; fetch it once with a network") from None
    with asking(where(source)):
        files = _choose(source, _files_by_split(source))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, _Listing(files=files).model_dump_json())
    return files


def local_file(source: HubSource, name: str, cache: Path | None, *, offline: bool) -> Path:
    """Fetch a file of the repository, unless the cache has it.

    Raises:
        DataError: It cannot be fetched.
    """
    # Unlike hf_hub_download, it never asks the network anything.
    known = try_to_load_from_cache(
        source.path, name, cache, revision=source.revision, repo_type="dataset"
    )
    if isinstance(known, str):
        return Path(known)
    place = f"{where(source)}/{name}"
    if offline:
        cause = "offline, and it is not in the cache; fetch it once with a network"
        raise data_error(place, cause)
    with asking(place):
        _quiet()
        return Path(
            hf_hub_download(
                source.path, name, repo_type="dataset", revision=source.revision, cache_dir=cache
            )
        )


def _files_by_split(source: HubSource) -> dict[str, list[str]]:
    """Ask the hub; ``datasets`` knows the ways in which a repository may say it."""
    import datasets  # slow

    _quiet()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    # So named, it is never a folder of this machine.
    path = f"hf://datasets/{source.path}"
    # Nothing of an earlier time is there, which ``datasets`` would take where the hub fails.
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
        return data_error(where(source), f"has several configurations; name one of {known}")
    if source.name is not None and source.name not in names:
        cause = f"there is no configuration {source.name!r}"
        return data_error(where(source), f"{cause}; name one of {known}")
    return error


def _choose(source: HubSource, by_split: dict[str, list[str]]) -> list[str]:
    files = by_split.get(source.split)
    if not files:
        cause = f"there is no split {source.split!r}"
        raise data_error(where(source), f"{cause}; there are: {', '.join(by_split) or 'none'}")
    for name in files:
        if not name.endswith(_ENDINGS):
            cause = f"{name!r} is neither parquet, Arrow nor JSON; convert it to a local file"
            raise data_error(where(source), cause)
    return files


def _quiet() -> None:
    """Neither bars nor warnings: what matters of them is an error here."""
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    logging.set_verbosity(40)  # ERROR
