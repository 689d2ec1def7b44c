"""``POST /v1/run``: a program of a tool, run by the judges."""

from http import HTTPStatus

from aiohttp import web
from pydantic import ConfigDict, Field, ValidationError

from services.reward.errors import RefusedError
from services.reward.metrics import RewardMetrics
from services.reward.models import DEADLINE, MAX_DEADLINE
from services.reward.programs import Programs
from services.reward.requests import body_of, counted
from shared.programs import MAX_CODE, MAX_STDIN, Program
from shared.service.bodies import Bodies

# In JSON a byte may take six.
_MAX_BODY = 6 * (MAX_CODE + MAX_STDIN) + 4096
_MAX_BODIES = 64 * 1024 * 1024


class RunRequest(Program):
    """Body of ``/v1/run``; ``deadline`` is in seconds, the wait for a judge included."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    deadline: float = Field(default=DEADLINE, gt=0, le=MAX_DEADLINE)

    @property
    def program(self) -> Program:
        return Program.model_construct(**self.model_dump(exclude={"deadline"}))


def parse_run(document: object) -> RunRequest:
    """Validate a decoded body.

    Raises:
        RefusedError: The program or its input is too large.
        ValidationError: It has another shape.
    """
    try:
        return RunRequest.model_validate(document)
    except ValidationError as error:
        for found in error.errors(include_url=False, include_input=False):
            if found["type"] == "too_large":
                text = f"{'.'.join(map(str, found['loc']))}: {found['msg']}"
                raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text) from None
        raise


class RunRoute:
    """The handler of ``/v1/run``."""

    def __init__(self, programs: Programs, metrics: RewardMetrics) -> None:
        self._programs = programs
        self._metrics = metrics
        self._bodies = Bodies(max_body=_MAX_BODY, max_held=_MAX_BODIES)

    def add(self, app: web.Application) -> None:
        app.router.add_post("/v1/run", counted("/v1/run", self._metrics, self._run))

    async def _run(self, request: web.Request) -> web.Response:
        async with body_of(request, self._bodies, parse_run) as body:
            program, deadline = body.program, body.deadline
        result = await self._programs.run(program, deadline)
        self._metrics.count_program(result.status)
        return web.Response(text=result.model_dump_json(), content_type="application/json")
