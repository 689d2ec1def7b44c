"""Ledger of all runs in Redis: completions, verdicts, job queue.

Writes are idempotent, so clients retry them. Jobs are delivered at least once, and each completion
gets exactly one verdict. ``keys`` defines every Redis key.
"""

from shared.ledger.connection import connect, connect_async, fail_fast, ping_error, wait_for_redis
from shared.ledger.ledger import CanaryLedger, Ledger, VerdictEvent
from shared.ledger.queue import JudgeQueue
from shared.ledger.runs import RunProgress, list_runs, runs_progress

__all__ = [
    "CanaryLedger",
    "JudgeQueue",
    "Ledger",
    "RunProgress",
    "VerdictEvent",
    "connect",
    "connect_async",
    "fail_fast",
    "list_runs",
    "ping_error",
    "runs_progress",
    "wait_for_redis",
]
