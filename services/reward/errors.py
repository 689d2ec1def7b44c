"""Requests that the service does not answer with results."""

from http import HTTPStatus

RETRY_AFTER = 5


class RefusedError(Exception):
    """A request that is refused before anything of it is judged.

    Attributes:
        status: HTTP status.
        index: Item of a batch that is at fault; None if none is.
        retry_after: Seconds after which to try again; None where that cannot help.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        index: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message if index is None else f"items[{index}]: {message}")
        self.message = message
        self.status = status
        self.index = index
        self.retry_after = retry_after

    def at(self, index: int | None) -> "RefusedError":
        """The same refusal, about an item of a batch; None for a request without a batch."""
        return RefusedError(self.status, self.message, index=index, retry_after=self.retry_after)


def too_many(message: str) -> RefusedError:
    """A refusal by admission control (429): the same request may be accepted later."""
    return RefusedError(HTTPStatus.TOO_MANY_REQUESTS, message, retry_after=RETRY_AFTER)
