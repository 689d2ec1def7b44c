"""Exception tree: a ``PlumblineError`` is an error that the user can fix.

A command prints it as one line on stderr and exits with its code. Any other exception is a bug and
keeps its traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.redaction import is_redacted, redact


class PlumblineError(Exception):
    """An error with a known cause. The message says what happened, to what, and what to do.

    As text, it has no secrets of addresses that it quotes.
    """

    exit_code = 2

    def __str__(self) -> str:
        return redact(super().__str__())


class ConfigError(PlumblineError):
    """A configuration key or value is invalid."""


class DataError(PlumblineError):
    """A data set or completions file cannot be used."""


class OutputError(PlumblineError):
    """An output folder cannot be read or written, or holds the results of another run."""


class ServiceError(PlumblineError):
    """Redis, the sandbox, the generator or a child process is unavailable or misconfigured."""


class UnavailableError(ServiceError):
    """A service does not answer yet; it may be starting, so a retry can help."""


class FindingsError(PlumblineError):
    """A check was completed and has findings."""

    exit_code = 1


class IncompleteRunError(PlumblineError):
    """The run finished, but infrastructure failures left samples without a verdict."""

    exit_code = 1


class UntrustedRunError(PlumblineError):
    """The run finished, but a sandbox judged canaries wrongly, so its verdicts are not trusted."""

    exit_code = 3


class UndecidedError(PlumblineError):
    """A check has no clear result: the gate is inconclusive, or a run is accepted with warnings."""

    exit_code = 4


class InterruptedRunError(PlumblineError):
    """The command was interrupted; repeating it resumes the run."""

    exit_code = 130


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Convert any error of a file system or file format into a DataError that names ``path``."""
    if is_redacted(str(path)):
        raise data_error(path, "stored without its password or tokens; give the whole address")
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise data_error(path, "no such file; check the path") from None
    except IsADirectoryError:
        raise data_error(path, "is a folder; name a file in it") from None
    # Every fsspec backend raises its own exceptions (of aiohttp, botocore …), which cannot all be
    # imported here. Catching everything is safe because the block only reads.
    except Exception as error:  # noqa: BLE001
        cause = f"{type(error).__name__}: {error}"
        raise data_error(
            path, f"cannot be read ({cause}); check the file and its permissions"
        ) from None


def data_error(place: str, cause: str) -> DataError:
    """Create an error whose message is one line, even if the data quoted in it has newlines."""
    return DataError(" ".join(f"{place}: {cause}".splitlines()))
