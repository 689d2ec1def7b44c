"""Wall clocks that jump: those of the command, of its Redis, and of the other Python processes.

libfaketime is of no use here: under its version 0.9.10, Python's ``time.sleep`` fails, because it
shifts the deadlines of the monotonic clock. ``clock.c`` is what is needed of it.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

from tests.chaos.schedule import CLOCKS

_SOURCE = Path(__file__).with_name("clock.c")
# A day in either direction: jumps add up.
_MOST = 86_400
# Services get a small part of the command's environment, so the interpreter itself loads the
# library, by executing itself once more. Its own children, such as programs, do not get it.
_SITE = """\
import os, sys
if "CHAOS_CLOCK" not in os.environ:
    os.environ.update(LD_PRELOAD={library!r}, CHAOS_CLOCK={clock!r})
    os.execv(sys.executable, sys.orig_argv)
del os.environ["LD_PRELOAD"], os.environ["CHAOS_CLOCK"]
"""


class Clocks:
    """The clocks of a stack; without a C compiler there are none, and nothing is changed."""

    def __init__(self, folder: Path) -> None:
        """Build the library in a new folder."""
        folder.mkdir()
        self._folder, self._library = folder, folder / "clock.so"
        self._jumped = dict.fromkeys(CLOCKS[:-1], 0)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if self.available and compiler:
            command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE)]
            self.available = subprocess.run(command, capture_output=True).returncode == 0
        self.available = bool(compiler) and self.available
        self.reset()
        site = folder / "site"
        site.mkdir()
        text = _SITE.format(library=str(self._library), clock=str(self._file("services")))
        (site / "sitecustomize.py").write_text(text)

    available = True

    def environment(self, clock: str) -> dict[str, str]:
        """Variables for a process with this clock, and for those that it starts."""
        if not self.available:
            return {}
        own = {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file(clock))}
        return own | {"PYTHONPATH": str(self._folder / "site")}

    def jump(self, clock: str, seconds: float) -> str:
        """Let a clock jump, or all of them; return by how much they are wrong now."""
        for name in self._jumped if clock == "all" else (clock,):
            jumped = self._jumped[name] + int(seconds)
            self._set(name, max(-_MOST, min(jumped, _MOST)))
        return ", ".join(f"{name} {jumped:+d} s" for name, jumped in self._jumped.items())

    def reset(self) -> None:
        for name in self._jumped:
            self._set(name, 0)

    def _set(self, name: str, jumped: int) -> None:
        self._jumped[name] = jumped
        file = os.open(self._file(name), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, struct.pack("q", jumped), 0)
        finally:
            os.close(file)

    def _file(self, name: str) -> Path:
        return self._folder / name
