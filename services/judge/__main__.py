"""Entry point of a judge worker (``python -m services.judge``): several completions at once."""

import os
import socket
import uuid
from functools import partial

import uvloop

from services.judge.health import sandbox_failure
from services.judge.jobs import JudgeSettings
from services.judge.worker import JudgeProcess
from shared.address import Address
from shared.ledger import ping_error, wait_for_redis
from shared.service.logs import get_logger
from shared.service.processes import announce_port, run_service
from shared.service.server import HealthServer, Readiness


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
        partial(sandbox_failure, sandboxes),
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


if __name__ == "__main__":
    raise SystemExit(main())
