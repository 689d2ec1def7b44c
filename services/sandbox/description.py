"""OpenAPI description of the sandbox's API."""

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from shared.harness.sandbox_api import (
    EvalResult,
    RunCodeRequest,
    RunCodeResponse,
    SubmitRequest,
)
from shared.harness.wire import CallResult, RunCasesRequest
from shared.service import openapi
from shared.service.openapi import Route


class InvalidField(BaseModel):
    """A field that is wrong: its place in the body, and the reason."""

    model_config = ConfigDict(extra="allow")

    type: str
    loc: list[int | str]
    msg: str


class Failure(BaseModel):
    """Body of every response with a status of 400 or above."""

    detail: str | list[InvalidField]


ROUTES: tuple[Route, ...] = (
    Route("/v1/ping", "ping", "The word pong", str),
    Route("/health", "health", "The word pong", str),
    Route("/list_datasets", "list_datasets", "Names of the data sets", list[str]),
    Route(
        "/run_code",
        "run_code",
        "Results of a program",
        RunCodeResponse,
        method="post",
        body=RunCodeRequest,
    ),
    Route(
        "/run_cases",
        "run_cases",
        "Results of a program on many inputs",
        CallResult,
        method="post",
        body=RunCasesRequest,
    ),
    Route("/run_cases", "offer_cases", "The version of /run_cases", method="head"),
    Route(
        "/submit",
        "submit",
        "Verdict on a completion",
        EvalResult,
        method="post",
        body=SubmitRequest,
    ),
)


def add_description(app: web.Application) -> None:
    """Serve the description at ``/openapi.json``."""
    openapi.add_description(app, "Plumbline sandbox", ROUTES, Failure)
