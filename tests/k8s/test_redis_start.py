"""The StatefulSet's script and configuration with a real redis-server, in folders of the test."""

import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import AuthenticationError, Redis
from redis.exceptions import NoPermissionError

from tests.k8s.cluster import Cluster, env_of
from tests.redis_users import redis_of_the_stack

# Further ones are those of the users in tests/redis_users.py, whose start script is the same.
PASSWORD = "ünïcode '\"$`\\;#"
USERS = ("judge", "runner", "aggregator", "keda")
FOLDERS = ("/run/secrets/redis", "/run/redis", "/etc/redis", "/etc/plumbline/redis", "/data")


def mounted(cluster: Cluster, name: str) -> dict[str, str]:
    """The files of the ConfigMap that the pod mounts as this volume."""
    volumes = cluster.pod("redis").spec["volumes"]
    (source,) = (volume["configMap"]["name"] for volume in volumes if volume["name"] == name)
    return dict(cluster.one("ConfigMap", source)["data"])


def configuration(cluster: Cluster) -> str:
    return mounted(cluster, "config")["redis.conf"]


@pytest.fixture
def start(minimal: Cluster, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts what the pod starts, with a password; ``tmp_path`` is the pod's file system."""
    folders = {name: tmp_path / name.strip("/") for name in FOLDERS}

    def moved(text: str) -> str:
        for inside, outside in folders.items():
            text = re.sub(rf"(?<![\w/]){re.escape(inside)}(?![\w-])", str(outside), text)
        return text

    for folder in folders.values():
        folder.mkdir(parents=True)
    for name, text in mounted(minimal, "users").items():
        (folders["/etc/plumbline/redis"] / name).write_text(moved(text))
    port = f"unixsocket {tmp_path}/socket\nport 0\n"
    (folders["/etc/redis"] / "redis.conf").write_text(moved(configuration(minimal)) + port)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "redis-server").symlink_to(redis_of_the_stack())
    container = minimal.pod("redis").spec["containers"][0]
    environment = {name: moved(value) for name, value in env_of(container).items()}
    started: list[subprocess.Popen[str]] = []

    def run(password: str) -> subprocess.Popen[str]:
        secrets = folders["/run/secrets/redis"]
        (secrets / "password").write_text(password)
        for user in USERS:
            (secrets / user).write_text(f"{password} of {user}")
        process = subprocess.Popen(
            [moved(part) for part in container["command"]],
            env=environment | {"PATH": f"{binaries}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def listening(path: str) -> bool:
    """Whether the server accepts connections; its socket is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def client(folder: Path, password: str | None, user: str | None = None) -> Redis:
    """Once the server is there; what it refuses is not tried again."""
    path = str(folder / "socket")
    give_up = time.monotonic() + 60
    while not listening(path) and time.monotonic() < give_up:
        time.sleep(0.02)
    return Redis(unix_socket_path=path, username=user, password=password, retry=None)


def test_only_the_passwords_open_it_and_each_service_has_its_own_user(start, tmp_path: Path):
    process = start(PASSWORD)
    assert client(tmp_path, PASSWORD).ping()
    for wrong in (None, "", PASSWORD + "x"):
        with pytest.raises(AuthenticationError):
            client(tmp_path, wrong).ping()
    for user in USERS:
        redis = client(tmp_path, f"{PASSWORD} of {user}", user)
        assert redis.ping()
        with pytest.raises(NoPermissionError):
            redis.flushall()
        with pytest.raises(AuthenticationError):
            client(tmp_path, PASSWORD, user).ping()
    users = tmp_path / "run" / "redis" / "users.acl"
    command_line = Path(f"/proc/{process.pid}/cmdline").read_text()
    assert PASSWORD not in command_line + users.read_text()
    assert users.stat().st_mode & 0o077 == 0
