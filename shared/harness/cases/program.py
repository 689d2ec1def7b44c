"""Python program that is the main program of its process: its modules, and its shutdown.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import atexit
import builtins
import gc
import io
import os
import sys
import types

from shared.harness.cases.syscalls import SIGINT, _fflush

TYPE_CHECKING = False  # the typing module is slow to load
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, TextIO


# Modules loaded once in the zygote if the answer imports them at its top; loading them must have no
# visible effect.
PRELOADED = frozenset((
    "abc", "array", "bisect", "calendar", "cmath", "collections", "contextlib", "copy",
    "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq",
    "io", "itertools", "json", "math", "numbers", "numpy", "operator", "os", "queue", "random",
    "re", "statistics", "string", "struct", "sys", "textwrap", "threading", "time", "types",
    "typing",
))  # fmt: skip
# Packages of this project, of which no program may find a module.
OWN_PACKAGES = ("services", "shared")

# Modules that are hidden from the program; to free them would take longer.
HIDDEN: list[object] = []


class Program:
    """A Python program as the main program of its process, and its shutdown.

    ``finish`` performs, in the interpreter's order, every observable step of the shutdown of
    ``python path``: join threads, run exit functions, flush streams, finalize the objects of
    the main module. It skips the finalization of the interpreter itself, the slowest part of an
    exit. Without ``streams`` the standard streams stay as they are.
    """

    def __init__(self, code: types.CodeType, path: str, streams: bool = True) -> None:
        self.code = code
        self.status = 0
        self.failure: list[BaseException] = []
        # An answer may replace these.
        self.leave, self.kill = os._exit, os.kill
        self.collect, self.collects = gc.collect, gc.isenabled
        self.exit_functions = atexit._run_exitfuncs
        self.shutdown = getattr(sys.modules.get("threading"), "_shutdown", None)
        for name in ("stdin", "stdout", "stderr") if streams else ():
            reopen(name)
        sys.argv[:] = [path]
        sys.path[0] = os.path.dirname(path)
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[1:] = [path]
        hide_frames(1 if sys.version_info >= (3, 12) else 2)  # ``exec`` counts before 3.12
        self.module = module = types.ModuleType("__main__")
        loader: Any = globals().get("__loader__")
        module.__loader__ = loader and type(loader)("__main__", path)
        module.__dict__.update(
            __annotations__={}, __builtins__=builtins, __file__=path, __cached__=None
        )
        sys.modules["__main__"] = module

    def serve(self, function_server: types.ModuleType, prelude: bytes, source: bytes) -> None:
        """Serve the program's functions, instead of running it as the main program."""
        hide_frames(function_server.FRAMES)
        texts = [text.decode("utf-8", "replace") for text in (prelude, source)]
        server = function_server.Server(*texts, self.code)
        self.code, self.module = server.launch, server.launcher

    def end(self) -> NoReturn:
        """Shut down after the last line, or after an uncaught exception."""
        flush(stream("stderr"))
        flush(stream("stdout"))
        if self.failure:
            self.fail(self.failure.pop())
        self.finish()

    def fail(self, error: BaseException) -> None:
        # The first frame is the harness's.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        if isinstance(error, SystemExit):
            self.status = exit_status(error.code)
            return
        self.status = -SIGINT if isinstance(error, KeyboardInterrupt) else 1
        hook = getattr(sys, "excepthook", sys.__excepthook__)
        try:
            hook(type(error), error, error.__traceback__)
        except SystemExit as end:
            self.status = exit_status(end.code)
        except BaseException:
            sys.__excepthook__(type(error), error, error.__traceback__)

    def finish(self) -> NoReturn:
        quietly(self.join_threads)
        quietly(self.exit_functions)
        flushed = self.flush_all()
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        # Twice, as the interpreter does: the first pass finalizes containers before their contents,
        # so that a file is flushed before the stream below it is closed.
        if self.collects():
            quietly(self.collect)
        # Drop the last reference to the main module; its objects are finalized.
        del self.module
        sys.modules.pop("__main__", None)
        quietly(self.collect)
        flush(stream("stdout"))
        flush(stream("stderr"))
        _fflush(None)
        if self.status < 0:
            _signal.signal(-self.status, _signal.SIG_DFL)
            self.kill(os.getpid(), -self.status)
        self.leave(self.status if flushed else 120)

    def join_threads(self) -> None:
        """Shut ``threading`` down, unless nobody could tell."""
        threading = sys.modules["threading"]
        changed = threading._shutdown is not self.shutdown
        if changed or _thread._count() or atexit._ncallbacks() or threading._threading_atexits:
            threading._shutdown()

    @staticmethod
    def flush_all() -> bool:
        out = stream("stdout")
        failure = flush(out)
        if failure is not None:
            newer = sys.version_info >= (3, 13)
            write_error(
                "Exception ignored %s\n" % ("on flushing sys.stdout:" if newer else "in: %r" % out)
            )
            quietly(lambda: sys.__excepthook__(type(failure), failure, failure.__traceback__))
        return (flush(stream("stderr")) is None) & (failure is None)


def exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(1 << 63) <= code < 1 << 63 else 0xFF
    try:
        text = str(code)
    except BaseException:
        text = ""
    write_error(text)
    write_error("\n")
    return 1


def write_error(text: str) -> None:
    try:
        sys.stderr.write(text)
    except BaseException:
        pass


def quietly(function: Callable[[], object]) -> None:
    try:
        function()
    except BaseException:
        pass


def hide_frames(frames: int) -> None:
    """Make recursion limits count from the answer's first frame, above so many of ours."""
    set_limit, get_limit = sys.setrecursionlimit, sys.getrecursionlimit

    def setrecursionlimit(limit: int) -> None:
        own = isinstance(limit, int) and 0 < limit < (1 << 31) - frames
        set_limit(limit + frames if own else limit)

    def getrecursionlimit() -> int:
        return get_limit() - frames

    set_limit(get_limit() + frames)
    sys.setrecursionlimit, sys.getrecursionlimit = setrecursionlimit, getrecursionlimit


def reopen(name: str) -> None:
    """Recreate a standard stream as the interpreter does at its start."""
    old = getattr(sys, name)
    mode = "r" if name == "stdin" else "w"
    fd = ("stdin", "stdout", "stderr").index(name)
    buffering = 0 if isinstance(old.buffer, io.RawIOBase) else -1  # PYTHONUNBUFFERED
    buffer: Any = open(fd, mode + "b", buffering, closefd=False)
    getattr(buffer, "raw", buffer).name = "<%s>" % name
    new: Any = io.TextIOWrapper(
        buffer, old.encoding, old.errors, "\n", old.line_buffering, old.write_through
    )
    new.mode = mode
    setattr(sys, name, new)
    setattr(sys, "__%s__" % name, new)


def stream(name: str) -> TextIO | None:
    return getattr(sys, name, None)


def flush(stream: TextIO | None) -> BaseException | None:
    """Flush a stream if it exists and is open; returns the error, if any."""
    if stream is None:
        return None
    try:
        if stream.closed:
            return None
    except BaseException:
        pass  # a stream without ``closed`` counts as open
    try:
        stream.flush()
    except BaseException as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        return error
    return None


def imported(source: bytes) -> Iterator[str]:
    """Yield the preloadable modules that a program imports at its top."""
    for line in source.decode("utf-8", "replace").splitlines():
        words = line.replace(",", " ").split()
        if line.startswith("from ") and len(words) > 1:
            names = words[1:2]
        elif line.startswith("import "):
            names = words[1:]
        else:
            continue
        for name in names:
            if name.rstrip(";") in PRELOADED:
                yield name.rstrip(";")


def hide_modules() -> None:
    """Hide this project's modules from the program."""
    for name in list(sys.modules):
        if name.partition(".")[0] in OWN_PACKAGES:
            HIDDEN.append(sys.modules.pop(name))
