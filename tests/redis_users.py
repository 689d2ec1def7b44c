"""A Redis with the users that Compose and Kubernetes give it."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from services.cli.embedded.services import redis_binary
from shared.service.processes import free_port
from shared.service.settings import RedisSettings
from tests.waiting import until

CONFIGS = Path(__file__).parents[1] / "configs" / "redis"
# What an operator may choose, and what breaks shells, URLs and the syntax of ACL files.
PASSWORDS = {
    "default": "of the operator",
    "judge": "a b\"'#>/@:%?$`\\",
    "runner": "ünïcode ~* &* +@all",
    "aggregator": "plain",
    "reward": "%s\t;&|()",
    "keda": "#0",
}


def redis_of_the_stack() -> str:
    """A redis-server that reads the users' rights; skips where there is but an older one.

    The wheel that embedded runs fall back on has Redis 6, which does not know ``%R~``.
    """
    binary = redis_binary()
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    if not re.search(r"\bv=([7-9]|\d\d)\.", version.stdout):
        pytest.skip(f"no redis-server of version 7 or later on the PATH: {version.stdout}")
    return binary


class RedisWithUsers:
    """The server of a test, over a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.url = f"redis://127.0.0.1:{free_port()}/0"
        self._folder = folder
        self._secrets = folder / "secrets"
        self._secrets.mkdir()
        for user, password in PASSWORDS.items():
            name = "password" if user == "default" else user
            (self._secrets / name).write_text(password)
        binaries = folder / "bin"
        binaries.mkdir()
        (binaries / "redis-server").symlink_to(redis_of_the_stack())
        self.log = (folder / "redis.log").open("w+")
        self.process = self._start(binaries)

    def _start(self, binaries: Path) -> subprocess.Popen[bytes]:
        users = self._folder / "users.acl"
        port = self.url.rpartition(":")[2].removesuffix("/0")
        options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--aclfile", str(users)]
        return subprocess.Popen(
            ["sh", str(CONFIGS / "start.sh"), *options],
            env={
                "PATH": f"{binaries}:/usr/bin:/bin",
                "LC_ALL": "C.UTF-8",
                "PASSWORDS": str(self._secrets),
                "REDIS_USERS": str(users),
            },
            cwd=self._folder,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def environment(self, user: str) -> dict[str, str]:
        """The variables that a service of this user gets."""
        name = "password" if user == "default" else user
        return {
            "REDIS_URL": self.url,
            "REDIS_USERNAME": user,
            "REDIS_PASSWORD_FILE": str(self._secrets / name),
        }

    def url_of(self, user: str) -> str:
        """The URL with user and password, as a service makes it."""
        password = PASSWORDS[user]
        return RedisSettings(
            redis_url=self.url, redis_username=user, redis_password=password
        ).redis_url

    def client(self, user: str) -> Redis:
        return Redis.from_url(self.url_of(user))

    def wait(self) -> None:
        def answers() -> bool:
            assert self.process.poll() is None, Path(self.log.name).read_text()
            return self.client("default").ping()

        until("Redis answers", answers, every=0.02, not_yet=(RedisConnectionError,))

    def refusals(self) -> list[str]:
        """What users tried and may not, since the last call."""
        with self.client("default") as redis:
            refusals: list[dict[str, Any]] = redis.acl_log()
            redis.acl_log_reset()
        return [f"{entry['username']}: {entry['reason']} {entry['object']}" for entry in refusals]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


@contextmanager
def redis_with_users(folder: Path) -> Iterator[RedisWithUsers]:
    """Start the server and wait until it answers."""
    server = RedisWithUsers(folder)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def refused(redis: Redis, *command: object) -> bool:
    """Whether the server refuses a command for want of rights."""
    try:
        redis.execute_command(*command)  # type: ignore[arg-type]
    except ResponseError as error:
        return "NOPERM" in str(error) or "permission" in str(error)
    return False


def without_redis_settings() -> dict[str, str]:
    """This process's environment, for a service."""
    return {name: value for name, value in os.environ.items() if not name.startswith("REDIS_")}
