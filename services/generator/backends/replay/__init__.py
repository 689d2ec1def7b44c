"""The backend that answers with recorded completions, and can show every fault a server has."""

from services.generator.backends.replay.app import build_app, serve_replay

__all__ = ["build_app", "serve_replay"]
