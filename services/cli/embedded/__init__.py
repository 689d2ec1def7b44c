"""Embedded stack (``--embedded``): all services as supervised child processes on loopback."""

from services.cli.embedded.stack import EmbeddedStack, open_stack

__all__ = ["EmbeddedStack", "open_stack"]
