"""What can go wrong with the Hugging Face hub, each in one line."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from shared.errors import DataError
from shared.reading import data_error

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LOGIN = "log in with HF_TOKEN"
# The first that fits is taken: GatedRepoError is a RepositoryNotFoundError, for instance.
_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (GatedRepoError, f"needs a login; accept its terms on the hub and {_LOGIN}"),
    (
        RepositoryNotFoundError,
        f"there is no such data set, or it is private; check the name or {_LOGIN}",
    ),
    (RevisionNotFoundError, "there is no such revision; name a commit, a branch or a tag"),
    (HFValidationError, "that is no data set's name; write OWNER/NAME"),
    (OfflineModeIsEnabled, "offline, and it is not in the cache; fetch it once with a network"),
)


@contextmanager
def asking(place: str) -> Iterator[None]:
    """Turn whatever the hub's libraries raise into a DataError naming ``place``."""
    try:
        yield
    except DataError:
        raise
    # The libraries raise their own errors, those of HTTP clients and plain ones, one wrapped in the
    # other; nothing but asking the hub happens inside the block.
    except Exception as error:  # noqa: BLE001
        raise data_error(place, _cause(error)) from None


def _cause(error: BaseException) -> str:
    chain = list(_chain(error))
    for one in chain:
        if isinstance(one, OSError) and one.errno in _NO_ROOM:
            return f"no room left for it ({one.strerror}); make room, or name another cache"
    for kind, cause in _CAUSES:
        if any(isinstance(one, kind) for one in chain):
            return cause
    for one in chain:
        if isinstance(one, HfHubHTTPError) and one.response is not None:
            return f"the hub answered HTTP {one.response.status_code}; try again later"
    for one in chain:
        if _is_network(one):
            return f"the connection to the hub failed ({_brief(one)}); check the network"
    if isinstance(error, OSError) and error.filename:
        return f"the cache cannot be used ({error.strerror}: {error.filename}); check the folder"
    return f"cannot be fetched ({_brief(error)}); look at it on the hub, or {_LOGIN}"


def _is_network(error: BaseException) -> bool:
    # The hub's client changes its HTTP library from time to time; each has errors of its own.
    return type(error).__module__.startswith("httpx")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
