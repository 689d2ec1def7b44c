"""Languages of ``/run_code``: those of the table (``shared.harness.languages``), and the shell.

Commands are the table's, except that C++ is compiled as SandboxFusion does it.
"""

import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from shared.harness.languages import DEFAULT_HEAP, LANGUAGES, MIB
from shared.harness.sandbox_api import Language

# Endings of programs whose file may have any name.
_ANY_NAME = {"python": "py", "bash": "sh", "cpp": "cpp"}


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands for one program, in its folder.

    Attributes:
        variables: Variables of both commands.
        data_limit: Bytes that the program may write to, in place of a limit of its address space.
    """

    compile: list[str] | None
    run: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    data_limit: int | None = None


def file_name(language: Language, code: str) -> str:
    """Return a name for a program's file."""
    if language in _ANY_NAME:
        return f"tmp{secrets.token_hex(4)}.{_ANY_NAME[language]}"
    return LANGUAGES[language].file_of(code)


def commands_of(name: Language, source: Path, memory: int | None, python: Path) -> Commands:
    """Return the commands for a program; ``memory`` is its limit in bytes."""
    if name in ("bash", "python"):
        return Commands(None, [name if name == "bash" else str(python), str(source)])
    language = LANGUAGES[name]
    variables = language.variables(str(source.parent), memory or 0)
    if name == "cpp":
        compiler = ["g++", "-std=c++17", str(source), "-o", "test", "-lpthread"]
        return Commands(compiler, ["./test"])
    run = language.program(source.name, "./program", memory or 0)
    if language.classes:
        run = [*run[: run.index("-jar")], source.stem]
    limit = None
    if language.runtime_mib is not None:
        limit = language.data_limit(memory or DEFAULT_HEAP * MIB)
    return Commands(language.compiler(source.name), run, variables, limit)


def installed(path: str) -> list[Language]:
    """Return the languages whose programs are installed in the folders of ``path``."""
    names = dict.fromkeys(("python", "bash", *LANGUAGES))
    return [name for name in names if _is_installed(name, path)]  # type: ignore[misc]


def refusal(name: Language, path: str) -> str:
    """Return why the server does not run a language."""
    if name in LANGUAGES:
        return f"{name} is not installed in this sandbox; install {LANGUAGES[name].packages}"
    return f"this server does not run {name!r}, only {', '.join(installed(path))}"


def _is_installed(name: str, path: str) -> bool:
    tools = LANGUAGES[name].tools if name in LANGUAGES else ()
    return all(shutil.which(program, path=path) for program in tools)
