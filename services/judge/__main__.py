"""Entry point of a judge worker (``python -m services.judge``): several completions at once."""

import http.client
import os
import socket
import uuid
from collections.abc import Sequence
from functools import partial
from urllib.request import Request

import uvloop

from services.judge.jobs import JudgeSettings
from services.judge.worker import JudgeProcess
from shared.address import Address
from shared.ledger import ping_error, wait_for_redis
from shared.process_environment import open_directly
from shared.service.logs import get_logger
from shared.service.processes import announce_port, run_service
from shared.service.server import HealthServer, Readiness

_PING_SECONDS = 2.0


def main() -> int:
    return run_service("judge", JudgeSettings, _work)


def _work(settings: JudgeSettings) -> None:
    log = get_logger(__name__)
    name = settings.name or f"judge-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    redis = wait_for_redis(settings.redis_url, settings.host, settings.port, settings=settings)
    judge = JudgeProcess(redis, settings, name)
    sandboxes = [Address.parse(url) for url in settings.sandboxes]
    metrics = judge.metrics
    readiness = Readiness(
        partial(ping_error, redis),
        partial(_sandbox_failure, sandboxes),
        metrics.failure,
        details=metrics.details,
    )
    health = HealthServer(
        settings.host, settings.port, readiness, metrics.registry, settings=settings
    )
    with health:
        announce_port(health.port)
        log.info("ready", worker=name, concurrency=metrics.concurrency)
        uvloop.run(judge.serve_until_signal())
    log.info("stopped", worker=name, judged=metrics.judged)


def _sandbox_failure(addresses: Sequence[Address]) -> str | None:
    """Return why no sandbox answers; None if one does, or if each run names its own."""
    failure = None
    for address in addresses:
        ping = Request(f"{address.url}/v1/ping", headers=address.headers)
        try:
            with open_directly(ping, _PING_SECONDS):
                return None
        except (OSError, http.client.HTTPException, ValueError) as error:
            tried = ", ".join(map(str, addresses))
            failure = f"no sandbox answers, tried {tried}: {error}"
    return failure


if __name__ == "__main__":
    raise SystemExit(main())
