"""Ways to install the sandbox: by whom, in which container, with which interpreter.

Each starts the server as a process of its own, so that it can be another user's.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from services.sandbox.settings import SandboxSettings
from tests.processes import service_process

REPOSITORY = Path(__file__).resolve().parents[2]
# A user that nothing else runs as.
PLAIN_USER = 48123
ROOT = os.geteuid() == 0
AS_PLAIN_USER = [
    "setpriv", f"--reuid={PLAIN_USER}", f"--regid={PLAIN_USER}", "--clear-groups",
    "--inh-caps=-all", "--bounding-set=-all",
]  # fmt: skip
# Root of a user namespace that may make no others: as in a container without privileges.
NO_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
CONTAINER = ["unshare", "--user", "--map-root-user", "sh", "-c", NO_NAMESPACES, "sh"]
NO_CAPABILITIES = ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]


@dataclass(frozen=True)
class Installation:
    """A way to install the server.

    Attributes:
        command: Command line before the server's own.
        rungs: The isolations that work in it on a machine that permits everything.
        hidden: Whether the interpreter lies in a folder that other users cannot enter.
    """

    command: tuple[str, ...]
    rungs: tuple[str, ...]
    hidden: bool = False


ALL = ("bwrap", "landlock", "none")
INSTALLATIONS = {
    "root": Installation((), ALL),
    # The others refuse to start there: without mounts no program runs as root.
    "root, hidden interpreter": Installation((), ALL[:1], hidden=True),
    "container": Installation((*CONTAINER, *NO_CAPABILITIES), ()),
    "user": Installation(tuple(AS_PLAIN_USER), ALL),
}
if not ROOT:
    INSTALLATIONS = {
        "user": Installation((), ALL),
    }


@cache
def public_python() -> Path | None:
    """An interpreter of this version that every user can execute."""
    names = [os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"]
    for path in map(Path, names):
        if path.exists() and _public(path.resolve()) and _version(path) == sys.version_info[:2]:
            return path.resolve()
    return None


def python_for(rung: str) -> Path:
    """The interpreter for programs, which without mounts another user has to execute."""
    public = public_python() if rung in ("landlock", "none") else None
    return public or SandboxSettings().python


def _public(path: Path) -> bool:
    return all(there.stat().st_mode & stat.S_IXOTH for there in (path, *path.parents))


def _version(python: Path) -> tuple[int, ...]:
    script = "import sys; print(*sys.version_info[:2])"
    printed = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    return tuple(map(int, printed.stdout.split()))


def hidden_python(folder: Path, python: Path) -> Path:
    """Make a virtual environment with a copy of ``python`` that only this user can enter."""
    hidden = folder / "hidden"
    hidden.mkdir(mode=0o700)
    made = hidden / "venv"
    subprocess.run([python, "-m", "venv", "--without-pip", "--copies", made], check=True)
    return made / "bin/python3"


@contextmanager
def installed(installation: Installation, folder: Path, **settings: str) -> Iterator[str]:
    """Start a server; yield its base URL.

    Raises:
        ServiceError: It does not start.
    """
    python = public_python() or Path(os.path.realpath(sys.executable))
    programs = hidden_python(folder, python) if installation.hidden else python
    temp = folder / "temp"
    temp.mkdir()
    for path in (folder, temp):
        path.chmod(0o755)
    if ROOT and installation.command[:1] == ("setpriv",):
        os.chown(temp, PLAIN_USER, PLAIN_USER)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join([str(REPOSITORY), *packages]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PLUMBLINE_SANDBOX_PYTHON": str(programs),
        "PLUMBLINE_SANDBOX_TEMP_ROOT": str(temp),
    }
    command = [*installation.command, str(python)]
    with service_process(
        "services.sandbox",
        folder / "log",
        temp / "port",
        python=command,
        environment=environment,
        **settings,
    ) as (_, url):
        yield url
