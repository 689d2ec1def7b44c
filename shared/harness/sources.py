"""Source texts of modules that run in the sandbox, where the project's packages are missing."""

from functools import cache
from importlib.resources import files

# Modules in the order in which they are loaded there: each imports only those before it.
_CASES = (
    *("languages", "cases.files", "cases.syscalls", "cases.processes", "cases.streams"),
    *("cases.supervisor", "cases.program", "cases.answer", "cases.entry"),
)
_FUNCTIONS = (
    *("forms", "values", "function_server", "function_results", "function_tester"),
    "functions",
)


@cache
def module_source(package: str, name: str) -> str:
    """Return the source text of a module."""
    return files(package).joinpath(f"{name}.py").read_text(encoding="utf-8")


def harness_sources(*, functions: bool) -> dict[str, str]:
    """Return the source texts of the case runner by full names, in the order of their imports.

    Args:
        functions: Whether it must be able to run function tests.
    """
    names = (*_CASES, *_FUNCTIONS) if functions else _CASES
    packages = ("shared.harness", "shared.harness.cases")
    return {
        **{name: module_source(name, "__init__") for name in packages},
        **{
            f"shared.harness.{name}": module_source(*f"shared.harness.{name}".rsplit(".", 1))
            for name in names
        },
    }
