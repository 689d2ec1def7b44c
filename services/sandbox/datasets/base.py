"""Dataset classes: interface, plans to run, errors and record validation.

A dataset class plans the programs for a submitted completion, without running them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from services.sandbox.schemas import (
    RunCodeRequest,
    StdioCase,
    SubmitRequest,
)
from shared.foreign_json import first_errors
from shared.text import shorten_end

DETAIL_LIMIT = 500

Model = TypeVar("Model", bound=BaseModel)


class DatasetError(Exception):
    """A request failed; the message is the ``detail`` of the response.

    Attributes:
        status: 400 if the request is at fault, 500 if the sandbox is.
    """

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(shorten_end(detail, DETAIL_LIMIT))
        self.status = status


def bad_request(detail: str) -> DatasetError:
    return DatasetError(HTTPStatus.BAD_REQUEST, detail)


def internal_error(detail: str) -> DatasetError:
    return DatasetError(HTTPStatus.INTERNAL_SERVER_ERROR, detail)


@dataclass(frozen=True)
class ProgramRun:
    """Plan of one program that contains its tests, accepted if it exits with 0.

    Attributes:
        extracted_code: The completion's part of the program.
        flag: Text that stdout must contain in addition.
        extra: The response's ``extra``.
    """

    program: RunCodeRequest
    extracted_code: str
    flag: str = ""
    extra: dict[str, Any] | None = None


@dataclass(frozen=True)
class StdioRuns:
    """Plan of one program that runs once per case, on the case's standard input.

    Attributes:
        run_all: Continue after a failed case.
        shorten: Shorten long texts of passed cases in the response.
    """

    program: RunCodeRequest
    cases: list[StdioCase]
    run_all: bool
    shorten: bool


Plan = ProgramRun | StdioRuns


Planner = Callable[[SubmitRequest], Plan]
"""A dataset class of SandboxFusion: plans a submit with the record in its config.

Raises DatasetError (400).
"""


def read_record(request: SubmitRequest, model: type[Model]) -> Model:
    """Validate the record of a submit.

    Raises:
        DatasetError: 400, the record is missing, a list, or does not match ``model``.
    """
    data = request.config.provided_data
    if not data:
        raise bad_request(
            "this server stores no data sets; send the record in config.provided_data"
        )
    if isinstance(data, list):
        raise bad_request("request.config.provided_data should be a dict with str -> str | int")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise bad_request(_detail(error)) from error


def _detail(error: ValidationError) -> str:
    first = first_errors(error)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"the record: {place}: {first['msg']}"
