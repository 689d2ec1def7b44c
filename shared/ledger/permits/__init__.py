"""Permits to use a sandbox: one limit for the whole fleet, found by what each sandbox bears."""

from shared.ledger.permits.pool import Permit, SandboxPool
from shared.ledger.permits.settings import Outcome, PlaceState, PoolSettings

__all__ = ["Outcome", "Permit", "PlaceState", "PoolSettings", "SandboxPool"]
