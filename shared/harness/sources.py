"""Source texts of modules that run in the sandbox, where the project's packages are missing."""

from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath

# Modules in the order in which they are loaded there: each imports only those before it.
_CASES = (
    "languages",
    *("cases.files", "cases.syscalls", "cases.processes", "cases.clocks", "cases.privileges"),
    *("cases.folders", "cases.records", "cases.streams", "cases.program", "cases.preload"),
    "cases.classes",
    *("cases.zygote", "cases.supervisor", "cases.entry", "cases"),
)
_FUNCTIONS = (
    *("function_values.crossing", "function_values.encoder", "function_values.objects"),
    *("function_values.decoder", "function_values", "function_server", "function_calls"),
    *("function_tester", "function_case"),
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
    return {
        "shared.harness": module_source("shared.harness", "__init__"),
        **{f"shared.harness.{name}": _source(name) for name in names},
    }


@cache
def _source(name: str) -> str:
    # Not by the import system, which would load the case runner here.
    path = PurePosixPath(*name.split("."))
    folder = files("shared.harness")
    if folder.joinpath(str(path)).is_dir():
        path /= "__init__"
    return folder.joinpath(f"{path}.py").read_text(encoding="utf-8")
