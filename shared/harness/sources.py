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


FUNCTION_MODULES = ("function_values", "function_server", "function_tester", "function_case")


def function_sources() -> dict[str, str]:
    """Return the source texts of the modules of function tests by name, in order."""
    return {name: module_source("shared.harness", name) for name in FUNCTION_MODULES}
