"""Admission control for sandboxes: fleet-wide permits with an adaptive limit per sandbox."""

from services.judge.permits.pool import Permit, SandboxPool
from services.judge.permits.script import CallOutcome, PoolSettings, SandboxState

__all__ = ["CallOutcome", "Permit", "PoolSettings", "SandboxPool", "SandboxState"]
