"""Environment of the embedded services, and the sandbox that starts before all else.

This module imports little: the sandbox starts while the command imports its own modules.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from shared.process_environment import PROXY_VARIABLES, die_with_parent
from shared.redaction import without_secrets

# Variables of this process that every embedded service gets.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH")
# Credentials and addresses of object stores, as the filesystems of fsspec read them, and proxies,
# whose addresses may have a password.
_STORAGE = ("AWS_", "FSSPEC_", "GOOGLE_", "GCSFS_", "STORAGE_EMULATOR_", "AZURE_", "OCI", "HF_")
_OUTSIDE = (*_STORAGE, *PROXY_VARIABLES)
# Variables with secrets that each service gets, by the beginnings of their names. Sandbox and
# judges open no files of a run, and the programs under test must not find credentials.
OWN_SECRETS: Mapping[str, tuple[str, ...]] = {
    "sandbox": ("PLUMBLINE_SANDBOX_",),
    "judge": ("PLUMBLINE_SANDBOX_",),
    "generator": ("PLUMBLINE_GENERATOR_", *_OUTSIDE),
    "reward": ("PLUMBLINE_REWARD_", "PLUMBLINE_SANDBOX_", *_OUTSIDE),
}
PROGRAMS_PYTHON = "PLUMBLINE_SANDBOX_PYTHON"
# The tokens in this process's environment belong to services elsewhere. Those of the stack listen
# on the loopback address, and their clients send none.
NO_SANDBOX_TOKEN = {"PLUMBLINE_SANDBOX_TOKEN": "", "PLUMBLINE_SANDBOX_TOKEN_FILE": ""}
SANDBOX_SETTINGS = {"PLUMBLINE_SANDBOX_SHUTDOWN_SECONDS": "1", "PORT": "0", **NO_SANDBOX_TOKEN}
_waiting: list[subprocess.Popen[bytes]] = []


def base_environment(*own: str) -> dict[str, str]:
    """Return the environment of an embedded service: a small part of this process's.

    It has no secrets but those whose names begin with one of ``own``.
    """
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    ours = {k: v for k, v in os.environ.items() if k.startswith(("PLUMBLINE_", *own))}
    passed = without_secrets(ours, keep=own)
    level = {"LOG_LEVEL": os.environ.get("LOG_LEVEL") or "INFO"}
    return kept | passed | level | {"PYTHONUNBUFFERED": "1"}


def start_sandbox() -> None:
    """Start a sandbox that reads on standard input where to log, and to write its port.

    A sandbox that cannot start is started again with the other services, and leaves its reason
    there. None starts if ``SANDBOX_URLS`` names others.
    """
    if os.environ.get("SANDBOX_URLS"):
        return
    # Imported here because the runner's image has no sandbox.
    from services.sandbox.programs import interpreter

    environment = base_environment(*OWN_SECRETS["sandbox"]) | SANDBOX_SETTINGS
    if not environment.get(PROGRAMS_PYTHON):
        if not interpreter().exists():
            return
        environment[PROGRAMS_PYTHON] = str(interpreter())
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            (sys.executable, "-m", "services.sandbox", "--wait"),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the command alone
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
    _waiting.append(process)


def waiting_sandbox() -> subprocess.Popen[bytes] | None:
    """The sandbox that waits, if there is one; it ends when its standard input is closed."""
    return _waiting.pop() if _waiting else None
