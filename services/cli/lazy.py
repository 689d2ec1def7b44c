"""Command group that imports a command's module only when that command runs.

The list of commands, suggestions for misspelt names and completion of names need no import.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


def _with_hyphens(name: str) -> str:
    """Scripts of verl's users write ``--output_dir``."""
    return name.replace("_", "-")


class LazyCommand(NamedTuple):
    """Place of a command, and the line that describes it in the list of commands.

    Attributes:
        target: ``module:attribute``, the command's function or the ``typer.Typer`` of a group.
        help: First line of the function's docstring, or the group's help.
    """

    target: str
    help: str


class LazyGroup(TyperGroup):
    """Group whose subclasses list the commands in ``lazy_commands``."""

    lazy_commands: Mapping[str, LazyCommand] = {}

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - passed on to typer
        super().__init__(**settings)
        for name, command in self.lazy_commands.items():
            self.add_command(TyperCommand(name, help=command.help))

    def load(self, name: str) -> Any:  # noqa: ANN401 - typer does not export click's Command
        """Import a command."""
        module, _, attribute = self.lazy_commands[name].target.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = name
            return group
        single = typer.Typer(add_completion=False)
        single.command(name, context_settings={"token_normalize_func": _with_hyphens})(found)
        return typer.main.get_command(single)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:  # noqa: ANN401
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and self.load(name or ""), rest
