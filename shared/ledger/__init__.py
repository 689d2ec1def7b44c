"""The ledger: what is owed and what is done, in Redis. Every Redis key is made in this package."""

from shared.ledger.connection import connect, connect_async, impatient, trouble
from shared.ledger.glance import Glance, glances
from shared.ledger.group import EventGroup, StreamEntry
from shared.ledger.ledger import Ledger, VerdictEvent, list_runs
from shared.ledger.permits import Outcome, Permit, PlaceState, PoolSettings, SandboxPool
from shared.ledger.queue import JudgeQueue, Lease, job_id
from shared.ledger.waiting import redis_when_there

__all__ = [
    "EventGroup",
    "Glance",
    "JudgeQueue",
    "Lease",
    "Ledger",
    "Outcome",
    "Permit",
    "PlaceState",
    "PoolSettings",
    "SandboxPool",
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
