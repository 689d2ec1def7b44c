"""One OpenAI-compatible server in front of several engines, which it starts and looks after."""

from services.generator.router.app import build_app
from services.generator.router.replica import Replica, ReplicaFactory
from services.generator.router.service import serve_router

__all__ = ["Replica", "ReplicaFactory", "build_app", "serve_router"]
