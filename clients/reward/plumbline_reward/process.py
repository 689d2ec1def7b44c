"""Connections and queues that all clients of a process share, made anew after a fork."""

import os
import threading
from dataclasses import dataclass

from plumbline_reward.calls import Calls
from plumbline_reward.delivery import Delivery
from plumbline_reward.settings import Settings
from plumbline_reward.transport import Connections


@dataclass(frozen=True)
class Service:
    """The ways to one service."""

    delivery: Delivery
    calls: Calls


_lock = threading.Lock()
_services: dict[tuple[str, str | None], Service] = {}


def service(settings: Settings) -> Service:
    """Return the ways to the service that the settings name."""
    key = (settings.url, settings.token)
    with _lock:
        if key not in _services:
            connections = Connections(*key)
            _services[key] = Service(Delivery(connections), Calls(connections))
        return _services[key]


def _forget() -> None:
    # Threads do not survive a fork, and the sockets are the parent's.
    global _lock
    _lock = threading.Lock()
    _services.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
