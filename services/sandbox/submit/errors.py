"""What keeps a submit from a verdict."""

from http import HTTPStatus


class SubmitError(Exception):
    """A submit that gets no verdict; the message is the answer's ``detail``.

    Attributes:
        status: 400 where the request is at fault, 500 where the sandbox is.
    """

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def refused(detail: str) -> SubmitError:
    return SubmitError(HTTPStatus.BAD_REQUEST, detail)


def failed(detail: str) -> SubmitError:
    return SubmitError(HTTPStatus.INTERNAL_SERVER_ERROR, detail)
