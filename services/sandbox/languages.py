"""How programs of each language are compiled and run."""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

COMPILED = frozenset({"cpp"})
PROGRAM = "test"  # the compiled program in its folder
CPP_LIBRARIES = ("crypto", "ssl", "pthread")


@dataclass(frozen=True)
class Plan:
    """The commands for one program, in its folder."""

    compile: list[str] | None
    run: list[str]


EXTENSIONS = {"python": "py", "bash": "sh", "cpp": "cpp"}


def plan(language: str, source: Path, python: Path) -> Plan:
    """The commands that run ``source``; ``language`` is a key of ``EXTENSIONS``."""
    if language == "cpp":
        links = [f"-l{library}" for library in cpp_libraries()]
        return Plan(["g++", "-std=c++17", str(source), "-o", PROGRAM, *links], [f"./{PROGRAM}"])
    interpreter = str(python) if language == "python" else "bash"
    return Plan(None, [interpreter, str(source)])


@cache
def cpp_libraries() -> tuple[str, ...]:
    """Those of the libraries programs may expect that this machine can link."""
    if shutil.which("g++") is None:
        return ()
    return tuple(library for library in CPP_LIBRARIES if _can_link(library))


def _can_link(library: str) -> bool:
    for suffix in ("so", "a"):
        # g++ answers with a full path if it has the file, and repeats the name if it has not.
        question = ["g++", f"-print-file-name=lib{library}.{suffix}"]
        answer = subprocess.run(question, capture_output=True, text=True, check=False)
        if Path(answer.stdout.strip()).is_absolute():
            return True
    return False
