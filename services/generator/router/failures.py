"""Why an attempt at a replica gave no answer."""

import errno
from enum import StrEnum


class Reason(StrEnum):
    CONNECTION = "connection"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    ABORT = "abort"
    BROKEN_STREAM = "broken_stream"
    EJECTED = "ejected"
    ROUTER = "router"
    """Nothing the replica did: this process ran out of sockets or memory."""


class AttemptError(Exception):
    """One replica gave no answer; another one may."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ClientGoneError(Exception):
    """Nobody is there to be answered."""


_OWN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}


def connection_failed(error: Exception) -> AttemptError:
    own = isinstance(error, OSError) and error.errno in _OWN
    message = " ".join(str(error).split()) or type(error).__name__
    return AttemptError(Reason.ROUTER if own else Reason.CONNECTION, message)
