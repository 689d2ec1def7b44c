"""The ledger: what is owed and what is done, in Redis. Every Redis key is made in this package."""

from shared.ledger.connection import connect, connect_async, trouble
from shared.ledger.ledger import Ledger, RunState, VerdictEvent, list_runs
from shared.ledger.permits import Outcome, Permit, PlaceState, PoolSettings, SandboxPool
from shared.ledger.queue import JudgeQueue, Lease, job_id

__all__ = [
    "JudgeQueue",
    "Lease",
    "Ledger",
    "Outcome",
    "Permit",
    "PlaceState",
    "PoolSettings",
    "RunState",
    "SandboxPool",
    "VerdictEvent",
    "connect",
    "connect_async",
    "job_id",
    "list_runs",
    "trouble",
]
