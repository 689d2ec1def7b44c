"""``--embedded``: the whole stack as child processes on loopback, ended with their parent."""

from services.cli.embedded.stack import EmbeddedStack, open_stack

__all__ = ["EmbeddedStack", "open_stack"]
