"""Environment of the embedded services, and the sandbox that starts before all else.

This module imports little: the sandbox imports its modules while the command imports its own.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from shared.process_environment import PROXY_VARIABLES
from shared.redaction import without_secrets
from shared.service.processes import die_with_parent

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
SANDBOX_COMMAND = (sys.executable, "-m", "services.sandbox", "--wait")
_waiting: list[subprocess.Popen[bytes]] = []


def base_environment(*own: str) -> dict[str, str]:
    """Return the environment of an embedded service: a small part of this process's.

    It has no secrets but those whose names begin with one of ``own``.
    """
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    ours = {k: v for k, v in os.environ.items() if k.startswith(("PLUMBLINE_", *own))}
    passed = without_secrets(ours, keep=own)
    level = {"LOG_LEVEL": os.environ.get("LOG_LEVEL", "INFO")}
    return kept | passed | level | {"PYTHONUNBUFFERED": "1"}


def start_sandbox() -> None:
    """Start a sandbox that waits for its settings on standard input."""
    process = subprocess.Popen(
        SANDBOX_COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=base_environment(*OWN_SECRETS["sandbox"]),
        start_new_session=True,  # Ctrl-C reaches the command alone
        preexec_fn=die_with_parent(signal.SIGTERM),
    )
    _waiting.append(process)


def waiting_sandbox() -> subprocess.Popen[bytes] | None:
    """The sandbox that waits, if there is one; it ends when its standard input is closed."""
    return _waiting.pop() if _waiting else None
