"""One exception tree: what a user can do something about is a ``PlumblineError``.

A command turns it into one line on stderr and the exit code that it carries; anything else is a
bug and keeps its traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class PlumblineError(Exception):
    """Trouble with a known cause. The message says what, where and what to do."""

    exit_code = 2


class ConfigError(PlumblineError):
    """A key or a value in the configuration that cannot be used."""


class DataError(PlumblineError):
    """A data set or completions file that cannot be used."""


class OutputError(PlumblineError):
    """An output folder that cannot be written or holds something else."""


class ServiceError(PlumblineError):
    """Redis, the sandbox, the generator or a child process is not there or not right."""


class UnavailableError(ServiceError):
    """It does not answer, or not yet: what is starting may be waited for."""


class FindingsError(PlumblineError):
    """A check was made, and found what it is there to find."""

    exit_code = 1


class IncompleteRunError(PlumblineError):
    """The run ended, but infrastructure errors left samples without a verdict."""

    exit_code = 1


class InterruptedRunError(PlumblineError):
    """Somebody ended the command; nothing that was done is lost."""

    exit_code = 130


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Convert any error of a file system or a format's reader into a DataError naming ``path``."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise data_error(path, "no such file; check the path") from None
    except IsADirectoryError:
        raise data_error(path, "is a folder; name a file in it") from None
    # Every fsspec backend raises its own exceptions (of aiohttp, botocore …), which cannot all be
    # imported here; the block does nothing except read.
    except Exception as error:  # noqa: BLE001
        cause = f"{type(error).__name__}: {error}"
        raise data_error(
            path, f"cannot be read ({cause}); check the file and its permissions"
        ) from None


def data_error(place: str, cause: str) -> DataError:
    """Create an error of one line, even if the data in it has line ends."""
    return DataError(" ".join(f"{place}: {cause}".splitlines()))
