"""OpenAPI description of the reward service's API."""

from aiohttp import web

from services.reward.models import (
    BatchRequest,
    BatchResponse,
    RunRequest,
    ScoreResult,
    ServiceInfo,
    SingleRequest,
)
from shared.programs import ProgramResult
from shared.service import openapi
from shared.service.openapi import Failure, Route

REFUSALS = (
    (403, "The data set is for evaluation, and the reward would be for training."),
    (404, "Unknown data set or problem."),
    (409, "The problem's content is not the one that was asked for."),
    (422, "The body has another shape, or its tests cannot be judged."),
    (429, "Too many completions are in flight; try again after Retry-After."),
    (503, "The completion could not be judged; try again after Retry-After, if there is one."),
    (504, "The completion was not judged within the deadline."),
)

RUN_REFUSALS = (
    (422, "The body has another shape, or the sandbox does not accept the program."),
    (429, "Too many programs are in flight; try again after Retry-After."),
    (503, "The program could not be run; try again after Retry-After."),
    (504, "The program was not run within the deadline."),
)

ROUTES: tuple[Route, ...] = (
    Route(
        "/v1/score",
        "score",
        "Scores of one or many completions",
        ScoreResult | BatchResponse,
        method="post",
        body=SingleRequest | BatchRequest,
        failures=REFUSALS,
    ),
    Route(
        "/v1/run",
        "run",
        "Output of a program, as a model's tool needs it",
        ProgramResult,
        method="post",
        body=RunRequest,
        failures=RUN_REFUSALS,
    ),
    Route("/v1/info", "info", "Version, protocol and data sets", ServiceInfo),
)


def add_description(app: web.Application) -> None:
    """Serve the description at ``/openapi.json``."""
    openapi.add_description(app, "Plumbline reward service", ROUTES, Failure)
