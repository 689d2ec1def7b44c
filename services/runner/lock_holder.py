"""Name of a lock's holder, by which other processes of the same machine see that it has died.

The name has the machine's boot, the namespace of process ids, the process id, and the time at which
the process began: a process of this name exists at most once. Of a holder elsewhere, or without
``/proc``, nothing is known; its lock has to expire.
"""

import os
import re
import socket
import uuid
from pathlib import Path

_NAME = re.compile(r"(?P<place>\S+) (?P<pid>\d{1,9}) (?P<began>\d+) [0-9a-f]{32}", re.ASCII)
# Fields of /proc/PID/stat behind the command's name: the state, and the start in clock ticks.
_STATE, _BEGAN = 0, 19
_ENDED = ("Z", "X")


def new_holder() -> str:
    """Return a name for this process, which is another one at each call."""
    pid = os.getpid()
    fields = _stat(pid)
    return f"{_place()} {pid} {fields[_BEGAN] if fields else 0} {uuid.uuid4().hex}"


def has_died(holder: str) -> bool:
    """Whether the holder was a process of this machine that has ended, for certain."""
    name = _NAME.fullmatch(holder)
    if name is None or name["place"] != _place() or name["place"].endswith("/unknown"):
        return False
    pid = int(name["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it is another user's
    fields = _stat(pid)
    # Where it cannot be read, as another user's with `hidepid`, it may be the holder.
    return bool(fields) and (fields[_STATE] in _ENDED or fields[_BEGAN] != name["began"])


def _place() -> str:
    """The host, its boot, and the namespace in which process ids count."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return f"{socket.gethostname()}/unknown"
    return f"{socket.gethostname()}/{boot}/{space}"


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
