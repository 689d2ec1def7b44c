"""Entry point of a judge worker (``python -m services.judge``): one job at a time."""

import logging
import os
import socket
import uuid
from functools import partial

from rq.serializers import JSONSerializer

from services.judge.health import SandboxWatch
from services.judge.jobs import JudgeProcess, JudgeWorker, set_current
from services.judge.settings import JudgeSettings
from shared.errors import PlumblineError
from shared.ledger import JudgeQueue, ping_error, wait_for_redis
from shared.service.health import HealthServer, Readiness, refuse
from shared.service.logs import configure_logging, get_logger
from shared.service.settings import load_settings


def main() -> int:
    configure_logging("judge")
    try:
        return _work(load_settings(JudgeSettings))
    except PlumblineError as error:
        return refuse("judge", error)


def _work(settings: JudgeSettings) -> int:
    configure_logging("judge", settings.log_level)
    for name in ("rq.worker", "rq.queue"):
        logging.getLogger(name).setLevel(logging.WARNING)
    log = get_logger(__name__)
    name = settings.name or f"judge-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    redis = wait_for_redis(settings.redis_url, settings.host, settings.port)
    process = JudgeProcess(settings, redis, name)
    set_current(process)
    worker = JudgeWorker(
        [JudgeQueue(redis).rq],
        name=name,
        connection=redis,
        serializer=JSONSerializer,
        log_job_description=False,
    )
    watch = SandboxWatch(settings.sandboxes)
    watch.start()
    readiness = Readiness(partial(ping_error, redis), lambda: watch.failure)
    with HealthServer(settings.host, settings.port, readiness, process.metrics.registry):
        log.info("ready", worker=name)
        worker.work(logging_level="WARNING")  # until SIGTERM; the current job is finished first
    process.close()
    log.info("stopped", worker=name, judged=process.metrics.judged)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
