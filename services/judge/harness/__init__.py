"""Programs that go into the sandbox with an answer. They run there, not here."""

from functools import cache
from importlib.resources import files


@cache
def source(name: str) -> str:
    """The text of one of this package's modules."""
    return files(__package__).joinpath(f"{name}.py").read_text(encoding="utf-8")
