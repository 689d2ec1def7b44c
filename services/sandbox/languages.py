"""Languages of this server: source file, compiler and command line of each."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from services.sandbox.schemas import Language

PROGRAM = "test"  # the compiled program in its folder
CPP_LIBRARIES = ("crypto", "ssl", "pthread")
# Heap in MiB of a program whose request has no memory limit.
DEFAULT_HEAP = 1024
# Memory in bytes of such a runtime beside its heap: code, stacks of its threads, buffers.
RUNTIME_MEMORY = 1 << 30
_LINKER_SECONDS = 30


@dataclass(frozen=True, slots=True)
class CommandLines:
    """The command lines for one program, in its folder."""

    compile: list[str] | None
    run: list[str]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A language.

    Attributes:
        ending: Ending of the source file.
        commands: Builds the command lines for a source file, with a memory limit in MiB.
        needs: Programs that must be installed.
        source: Name of the source file, if the compiler requires one.
        own_heap: Whether the command line limits the memory. A limit of the address space does not
            do for a runtime that reserves more than it uses.
    """

    ending: str
    commands: Callable[[Path, int], CommandLines]
    needs: tuple[str, ...] = ()
    source: str | None = None
    own_heap: bool = False


def toolchains(python: Path) -> Mapping[Language, Toolchain]:
    """The languages that this server knows; ``python`` is the interpreter of programs."""
    return {
        "python": Toolchain("py", lambda source, _: _interpreted(str(python), str(source))),
        "bash": Toolchain("sh", lambda source, _: _interpreted("bash", str(source))),
        "cpp": Toolchain("cpp", _cpp, ("g++",)),
        "rust": Toolchain("rs", _rust, ("rustc", "cc")),
        "java": Toolchain("java", _java, ("javac", "java"), source="Main.java", own_heap=True),
        "nodejs": Toolchain("js", _nodejs, ("node",), own_heap=True),
    }


def installed(python: Path, path: str) -> list[Language]:
    """The languages whose programs are installed in the folders of ``path``."""
    return [
        language
        for language, toolchain in toolchains(python).items()
        if all(shutil.which(program, path=path) for program in toolchain.needs)
    ]


def _interpreted(*command: str) -> CommandLines:
    return CommandLines(None, list(command))


def _cpp(source: Path, _memory: int) -> CommandLines:
    links = [f"-l{library}" for library in _cpp_libraries()]
    return CommandLines(["g++", "-std=c++17", str(source), "-o", PROGRAM, *links], [f"./{PROGRAM}"])


def _rust(source: Path, _memory: int) -> CommandLines:
    return CommandLines(["rustc", str(source), "-o", PROGRAM], [f"./{PROGRAM}"])


def _java(source: Path, memory: int) -> CommandLines:
    # Few threads: the process limit counts them. Class data need no room for a large application.
    limits = [f"-Xmx{memory}m", "-Xss64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return CommandLines(["javac", str(source)], ["java", *limits, "-ea", "Main"])


def _nodejs(source: Path, memory: int) -> CommandLines:
    return _interpreted("node", f"--max-old-space-size={memory}", str(source))


@cache
def _cpp_libraries() -> tuple[str, ...]:
    """The libraries that programs may expect, as far as this machine can link them."""
    if shutil.which("g++") is None:
        return ()
    return tuple(library for library in CPP_LIBRARIES if _can_link(library))


def _can_link(library: str) -> bool:
    for suffix in ("so", "a"):
        # g++ prints a full path if it finds the file, otherwise it repeats the name.
        command = ["g++", f"-print-file-name=lib{library}.{suffix}"]
        try:
            answer = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_LINKER_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
        if Path(answer.stdout.strip()).is_absolute():
            return True
    return False
