"""State of a worker in RQ while it judges."""

import signal
import time

from redis import Redis
from rq import Queue, get_current_job
from rq.serializers import JSONSerializer
from rq.worker import WorkerStatus

from services.judge.jobs import JudgeWorker

NAME = "rq:worker:w"


def lifetimes() -> list[int]:
    """Seconds until RQ would forget the worker: shortly before a sign of life, and after it."""
    job = get_current_job()
    assert job is not None
    redis = job.connection
    redis.expire(NAME, 5)
    before = redis.ttl(NAME)
    time.sleep(1.5)
    return [before, redis.ttl(NAME)]


def test_a_long_job_does_not_make_a_worker_look_dead(redis: Redis) -> None:
    queue = Queue("q", connection=redis, serializer=JSONSerializer)
    job = queue.enqueue(lifetimes)
    worker = JudgeWorker(
        [queue],
        name="w",
        connection=redis,
        serializer=JSONSerializer,
        job_monitoring_interval=1,
    )
    handlers = {sign: signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        worker.work(burst=True)  # it handles signals, and goes on doing so
    finally:
        for sign, handler in handlers.items():
            signal.signal(sign, handler)
    before, after = job.return_value()
    assert before <= 5 < 50 < after
    assert worker.get_state() == WorkerStatus.IDLE
    assert job.get_status() == "finished"
