"""Rows of the Hugging Face hub's data sets, at one commit each.

The files of a split are fetched as they are and read as local ones are: a split costs no more than
its own files, and what is there once is read again without a network.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, constants

from services.data.config import HubSource
from services.data.rows import local
from services.data.rows.base import Rows
from services.data.rows.hub_errors import asking
from services.data.rows.hub_files import (
    is_commit,
    local_file,
    repository_folder,
    split_files,
    where,
)
from shared.files import write_text
from shared.reading import data_error

_TIMEOUT = 30.0  # seconds


def rows(
    source: HubSource, columns: Sequence[str] | None, cache: Path | None, *, offline: bool
) -> Rows:
    """Read a split row by row, in the order of its files.

    Args:
        source: The data set.
        columns: The fields to give; a row may lack some. None for all.
        cache: Where fetched files are kept; None for the hub's own cache (``HF_HOME``).
        offline: Take it from the cache, or not at all; so does ``HF_HUB_OFFLINE``.

    Raises:
        DataError: While iterating: it cannot be had or read; one line that says why.
    """
    offline = offline or constants.HF_HUB_OFFLINE
    commit = resolve_revision(source, offline, cache)
    pinned = source.model_copy(update={"revision": commit})
    for name in split_files(pinned, cache, offline=offline):
        file = str(local_file(pinned, name, cache, offline=offline))
        for place, fields in local.rows(file, columns):
            yield f"{where(pinned)}/{name}{place.removeprefix(file)}", fields


def resolve_revision(source: HubSource, offline: bool, cache: Path | None = None) -> str:
    """The commit that the source's revision stands for now; offline, what it last stood for.

    Raises:
        DataError: There is no such data set or revision, or nobody to ask.
    """
    if is_commit(source.revision):
        return source.revision
    path = _reference(source, cache)
    if offline or constants.HF_HUB_OFFLINE:
        return _last_commit(source, path)
    with asking(where(source)):
        info = HfApi().dataset_info(source.path, revision=source.revision, timeout=_TIMEOUT)
        commit = info.sha or ""
        if not is_commit(commit):
            raise data_error(where(source), "the hub names no commit for it; name one yourself")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, commit)
    return commit


def _reference(source: HubSource, cache: Path | None) -> Path:
    """Where the hub's own client keeps the commit of a branch or tag, too."""
    revision = PurePosixPath(source.revision)
    if revision.is_absolute() or ".." in revision.parts:
        raise data_error(where(source), "that is no revision; name a commit, a branch or a tag")
    with asking(where(source)):
        return repository_folder(source, cache) / "refs" / revision


def _last_commit(source: HubSource, path: Path) -> str:
    try:
        commit = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    if not is_commit(commit):
        cause = "offline, and the commit that it stands for is not in the cache; name a commit"
        raise data_error(where(source), cause)
    return commit
