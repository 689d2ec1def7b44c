"""The ledger: what is owed and what is done, in Redis."""

from shared.ledger.connection import connect, connect_async, impatient, trouble
from shared.ledger.glance import Glance, glances
from shared.ledger.group import EventGroup, StreamEntry
from shared.ledger.ledger import Ledger, VerdictEvent, list_runs
from shared.ledger.queue import JobLease, JudgeQueue, job_id
from shared.ledger.waiting import redis_when_there

__all__ = [
    "EventGroup",
    "Glance",
    "JobLease",
    "JudgeQueue",
    "Ledger",
    "StreamEntry",
    "VerdictEvent",
    "connect",
    "connect_async",
    "glances",
    "impatient",
    "job_id",
    "list_runs",
    "redis_when_there",
    "trouble",
]
