"""Errors of the client: the service refused a request, or could not judge in time."""

from collections.abc import Mapping


class RewardError(Exception):
    """Base of the client's errors; its text says what happened and what to do."""


class RefusedError(RewardError):
    """The request is wrong and stays wrong: an unknown problem, a changed hash, a missing token.

    It is final and never retried. ``status`` is the HTTP status, None if nothing was sent.
    ``items`` are texts about the refused items of a batch, by index, if the service lists them.
    """

    def __init__(
        self, text: str, status: int | None = None, items: Mapping[int, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.items = items or {}

    def __reduce__(self) -> tuple[type["RefusedError"], tuple[str, int | None]]:
        # Ray sends exceptions from process to process.
        return type(self), (str(self), self.status)


class NotJudgedError(RewardError):
    """There is no verdict within the time limit, for reasons of infrastructure.

    It says nothing about the completion: leave the sample out, never count it as wrong.
    """


class RetryableError(Exception):
    """A failure of infrastructure within a call: connection, overload, a malformed answer.

    ``retry_after`` is the wait in seconds that the service asks for, None if it does not.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after
