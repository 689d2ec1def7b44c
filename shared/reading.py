"""Errors of reading, in one line that names the place."""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import DataError


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn whatever a file system or a format's reader raises into a DataError naming ``path``."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise data_error(path, "there is no such file; check the path") from None
    except IsADirectoryError:
        raise data_error(path, "is a folder; name a file in it") from None
    # Every fsspec backend has exceptions of its own (of aiohttp, botocore …), which cannot all be
    # imported here; nothing but reading happens inside the block.
    except Exception as error:  # noqa: BLE001
        cause = f"{type(error).__name__}: {error}"
        raise data_error(path, f"cannot be read ({cause}); check the file and its rights") from None


def data_error(place: str, cause: str) -> DataError:
    """Make an error of one line, whatever line ends the data brings into it."""
    return DataError(" ".join(f"{place}: {cause}".splitlines()))
