"""Source texts of modules that run in the sandbox, where the project's packages are missing."""

from functools import cache
from importlib.resources import files


@cache
def module_source(package: str, name: str) -> str:
    """Return the source text of a module."""
    return files(package).joinpath(f"{name}.py").read_text(encoding="utf-8")


def harness_source() -> str:
    """Return the source text of the case runner, ``shared.harness.cases``."""
    return module_source("shared.harness", "cases")
