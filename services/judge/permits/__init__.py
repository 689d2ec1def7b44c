"""Admission control for sandboxes: fleet-wide permits with an adaptive limit per sandbox."""

from services.judge.permits.pool import Permit, SandboxPool
from services.judge.permits.script import Outcome, PoolSettings, SandboxState

__all__ = ["Outcome", "Permit", "PoolSettings", "SandboxPool", "SandboxState"]
