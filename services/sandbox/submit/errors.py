"""What keeps a submit from a verdict, and a problem from its prompt."""

from http import HTTPStatus


class SubmitError(Exception):
    """A request that gets no verdict or prompt; the message is the answer's ``detail``.

    Attributes:
        status: 400 where the request is at fault, 404 where its record is not there, 500 where the
            sandbox is at fault.
    """

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def refused(detail: str) -> SubmitError:
    return SubmitError(HTTPStatus.BAD_REQUEST, detail)


def failed(detail: str) -> SubmitError:
    return SubmitError(HTTPStatus.INTERNAL_SERVER_ERROR, detail)


def missing(detail: str) -> SubmitError:
    return SubmitError(HTTPStatus.NOT_FOUND, detail)
