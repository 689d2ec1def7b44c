"""OpenAPI description of the reward service's API."""

from aiohttp import web

from services.reward.aliases.base import AliasOptions
from services.reward.aliases.nemo_gym import VerifyRequest, VerifyResponse
from services.reward.aliases.openrlhf import OpenRlhfRequest, OpenRlhfResponse
from services.reward.aliases.slime import SlimeRequest
from services.reward.models import (
    BatchRequest,
    BatchResponse,
    ScoreResult,
    ServiceInfo,
    SingleRequest,
)
from services.reward.run import RunRequest
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
ALIAS_REFUSALS = (
    (401, "The token is missing or wrong."),
    *(one for one in REFUSALS if one[0] != 504),
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
    Route(
        "/openrlhf",
        "openrlhf",
        "Rewards in the shape of OpenRLHF's remote reward",
        OpenRlhfResponse,
        method="post",
        body=OpenRlhfRequest,
        query=AliasOptions,
        failures=ALIAS_REFUSALS,
    ),
    Route(
        "/slime",
        "slime",
        "The reward of one completion, a number, in the shape of slime's remote reward",
        float,
        method="post",
        body=SlimeRequest,
        query=AliasOptions,
        failures=ALIAS_REFUSALS,
    ),
    Route(
        "/verify",
        "verify",
        "The reward of one response in the shape of NeMo-Gym's resources servers",
        VerifyResponse,
        method="post",
        body=VerifyRequest,
        query=AliasOptions,
        failures=ALIAS_REFUSALS,
    ),
    Route(
        "/seed_session",
        "seed_session",
        "Nothing; NeMo-Gym's agents call it before each row",
        method="post",
        failures=((401, "The token is missing or wrong."),),
    ),
    Route("/v1/info", "info", "Version, protocol and data sets", ServiceInfo),
)


def add_description(app: web.Application) -> None:
    """Serve the description at ``/openapi.json``."""
    openapi.add_description(app, "Plumbline reward service", ROUTES, Failure)
