"""The programs' environment: the modules that an answer may import beside the standard library.

It is a virtual environment with the packages of ``programs.lock`` and nothing else. So a verdict
depends neither on the packages of the server nor on those of the machine's Python. The image has
one at ``/opt/programs``. Elsewhere the base interpreter of this process makes it, in a folder that
the programs' user can read and that all installations of this release share.

    python -m services.sandbox.programs     # installs it, which needs an index of packages
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from shared.errors import PlumblineError, ServiceError
from shared.files import cache_folder

DESCRIPTION = "the modules that answers may import (numpy, sympy, …; 300 MB), once"
COMMAND = f"{sys.executable} -m services.sandbox.programs"
LOCK = Path(__file__).with_name("programs.lock")
# Programs of a server that is root run as users who cannot enter root's home.
_OF_MACHINE = Path("/var/cache/plumbline")
_FLAGS = ("--quiet", "--require-hashes", "--no-deps", "--only-binary", ":all:")
# Packages on PYTHONPATH would count as installed.
_ALL = "--ignore-installed"


def packages() -> list[str]:
    """The packages of the lock, whose modules have their names."""
    lines = LOCK.read_text().splitlines()
    return [line.partition("==")[0] for line in lines if line[:1].isalnum()]


def interpreter() -> Path:
    """The environment's interpreter, where it is installed or would be."""
    paths = [folder / "bin" / "python3" for folder in _folders()]
    return next((path for path in paths if os.access(path, os.X_OK)), paths[0])


def install() -> Path:
    """Install the environment unless it is there; returns its interpreter.

    Raises:
        ServiceError: The packages cannot be installed.
    """
    python = interpreter()
    if not python.exists():
        folder = python.parents[1]
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.parent.chmod(0o755)
            shutil.rmtree(folder, ignore_errors=True)  # one whose base interpreter is gone
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                _make(Path(made) / folder.name)
                (Path(made) / folder.name).rename(folder)
        except OSError as error:
            if python.exists():  # another process was faster
                return python
            raise _failed(f"{error.strerror or error}: {error.filename or folder}") from None
    return python


def _folders() -> list[Path]:
    """Where it may be, the place to install it first."""
    base = base_interpreter()
    version = ".".join(map(str, sys.version_info[:2]))
    content = f"{base} {version}\n{LOCK.read_text()}"
    name = f"programs-{version}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    if os.geteuid() == 0:
        return [_OF_MACHINE / name]
    return [cache_folder() / name, _OF_MACHINE / name]


def base_interpreter() -> Path:
    executable: str = getattr(sys, "_base_executable", sys.executable)
    return Path(executable).resolve()


def _make(folder: Path) -> None:
    _run([str(base_interpreter()), "-I", "-m", "venv", "--without-pip", str(folder)])
    python = str(folder / "bin" / "python3")
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        _run([*pip, "install", _ALL, *_FLAGS, "-r", str(LOCK)])
    elif uv := shutil.which("uv"):
        _run([uv, "pip", "install", "--python", python, *_FLAGS, "-r", str(LOCK)])
    else:
        raise _failed(f"neither pip for {sys.executable} nor uv is installed")


def _run(command: list[str]) -> None:
    # Any mask of the user's: programs of other users read these files.
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, umask=0o022
    )
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "rror" in line] or lines or [f"exit {done.returncode}"]
        raise _failed(errors[-1])


def _failed(reason: str) -> ServiceError:
    return ServiceError(
        f"cannot install the modules that answers may import: {reason}; try again with "
        f"`{COMMAND}`, or judge with fewer: "
        "PLUMBLINE_SANDBOX_PYTHON names another interpreter, and the run records its packages"
    )


def main() -> int:
    """Install the environment; prints its interpreter."""
    try:
        print(install())
    except PlumblineError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
