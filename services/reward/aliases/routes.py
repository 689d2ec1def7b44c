"""Routes of the aliases: parse, score, shape.

Their trainers cannot wait as long as a burst may take: slime gives up on a request after 120 s and
OpenRLHF after 180 s, and both repeat it. So what they asked for goes on until its deadline, and a
repetition finds it where it is, or answered. A request of which anything could not be judged is 503
as a whole: there is no number for it.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Protocol, TypeVar

from aiohttp import web

from services.reward.aliases.base import options_of, require_judged
from services.reward.aliases.nemo_gym import VerifyRequest, verified
from services.reward.aliases.openrlhf import OpenRlhfRequest, OpenRlhfResponse
from services.reward.aliases.slime import SlimeRequest
from services.reward.errors import RefusedError
from services.reward.metrics import RewardMetrics
from services.reward.models import ScoreItem, ScoreOptions, ScoreResult
from services.reward.requests import body_of, counted
from shared.service.bodies import Bodies
from shared.service.tokens import BearerToken

OPENRLHF, SLIME, VERIFY, SEED = "/openrlhf", "/slime", "/verify", "/seed_session"
ALIAS_PATHS = frozenset({OPENRLHF, SLIME, VERIFY, SEED})

Model = TypeVar("Model", OpenRlhfRequest, SlimeRequest, VerifyRequest)
Handler = Callable[[web.Request], Awaitable[web.Response]]


class Scores(Protocol):
    """Scores completions: ``services.reward.scorer.Scorer``."""

    def deadline_of(self, options: ScoreOptions) -> float: ...

    async def score(
        self, items: Sequence[ScoreItem], options: ScoreOptions
    ) -> list[ScoreResult]: ...


class AliasRoutes:
    """Handlers of the aliases.

    Args:
        scorer: Scores completions.
        metrics: Counts requests.
        bodies: Limits of the service.
        token: The token that clients must send. They may send it as the password of the URL too,
            because their trainers set no headers.
    """

    def __init__(
        self, scorer: Scores, metrics: RewardMetrics, bodies: Bodies, token: BearerToken | None
    ) -> None:
        self._scorer = scorer
        self._metrics = metrics
        self._bodies = bodies
        self._token = token
        self._scoring: set[asyncio.Task[list[ScoreResult]]] = set()

    def add(self, app: web.Application) -> None:
        for path, handler in (
            (OPENRLHF, self._openrlhf),
            (SLIME, self._slime),
            (VERIFY, self._verify),
            (SEED, self._seed),
        ):
            app.router.add_post(path, counted(path, self._metrics, self._admitted(handler)))
        # Not on_shutdown, which comes before the requests in flight have had their time to finish.
        app.on_cleanup.append(self._stop)

    def _admitted(self, handler: Handler) -> Handler:
        async def admit(request: web.Request) -> web.Response:
            if self._token is not None and not self._admits(self._token, request):
                text = "the token is missing or wrong; send it in Authorization, or as password"
                raise RefusedError(HTTPStatus.UNAUTHORIZED, text)
            return await handler(request)

        return admit

    @staticmethod
    def _admits(token: BearerToken, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return token.admits(request.headers)
        try:
            decoded = base64.b64decode(given.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            return False
        return token.matches(decoded.partition(":")[2])

    async def _openrlhf(self, request: web.Request) -> web.Response:
        _, results, scores = await self._scored(request, OpenRlhfRequest)
        return _json(OpenRlhfResponse.of(results, scores).model_dump_json())

    async def _slime(self, request: web.Request) -> web.Response:
        _, _, [score] = await self._scored(request, SlimeRequest)
        return _json(json.dumps(score))

    async def _verify(self, request: web.Request) -> web.Response:
        body, [result], [reward] = await self._scored(request, VerifyRequest)
        return _json(json.dumps(verified(body, result, reward)))

    async def _seed(self, _request: web.Request) -> web.Response:
        """NeMo-Gym's agents begin a session before each row; there is nothing to begin."""
        return _json("{}")

    async def _scored(
        self, request: web.Request, kind: type[Model]
    ) -> tuple[Model, list[ScoreResult], list[float]]:
        options = options_of(request.query)
        async with AsyncExitStack() as reading:
            body = await reading.enter_async_context(
                body_of(request, self._bodies, kind.model_validate)
            )
            items = body.items()
            held = reading.pop_all()
        # The body counts as held for as long as its items wait, also without its client.
        task = asyncio.create_task(self._score(items, options, held))
        self._scoring.add(task)
        task.add_done_callback(self._scored_at_last)
        results = await asyncio.shield(task)
        return body, results, require_judged(results, self._scorer.deadline_of(options))

    async def _score(
        self, items: Sequence[ScoreItem], options: ScoreOptions, held: AsyncExitStack
    ) -> list[ScoreResult]:
        async with held:
            return await self._scorer.score(items, options)

    def _scored_at_last(self, task: "asyncio.Task[list[ScoreResult]]") -> None:
        self._scoring.discard(task)
        if not task.cancelled():
            task.exception()  # of a request whose client is gone; nobody else asks for it

    async def _stop(self, _app: web.Application) -> None:
        left = list(self._scoring)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")
