"""The standard library's ``_posixshmem`` for a slot without ``/dev/shm``: blocks are files.

Standard library and Python 3.8 only.
"""

from __future__ import annotations

import os
import tempfile


def _path(name: str) -> str:
    return os.path.join(tempfile.gettempdir(), ".shm-" + name.strip("/"))


def shm_open(path: str, flags: int, mode: int = 0o777) -> int:
    return os.open(_path(path), flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)


def shm_unlink(path: str) -> None:
    os.unlink(_path(path))
