"""A master, its replica and three sentinels on the loopback address."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from services.cli.embedded.services import redis_binary
from shared.service.processes import free_port
from tests.waiting import until

SERVICE = "ledger"
PASSWORD = "p@ss:w/rd, of redis"
SENTINEL_PASSWORD = "s3ntinel/p@ss"
DOWN_AFTER = 0.5
"""Seconds after which the sentinels call a silent master down."""

_until = partial(until, seconds=20.0, every=0.05, not_yet=(RedisError, ValueError))


class Process:
    """A redis-server or a sentinel over its configuration file."""

    def __init__(self, folder: Path, name: str, lines: list[str], *options: str) -> None:
        self.port = free_port()
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        own = [f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}"]
        self.file = self.folder / "redis.conf"
        self.file.write_text("\n".join([*own, *lines]) + "\n")
        self._options = options
        self.start()

    def start(self) -> None:
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [redis_binary(), str(self.file), *self._options], stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()


class Sentinels:
    """The processes, and the URL by which a service finds the master."""

    def __init__(self, folder: Path, *settings: str) -> None:
        common = [
            f'requirepass "{PASSWORD}"',
            f'masterauth "{PASSWORD}"',
            "appendonly yes",
            'save ""',
            "repl-diskless-sync-delay 0",
            *settings,
        ]
        self.servers = [Process(folder, f"redis-{number}", common) for number in (0, 1)]
        master, replica = self.servers
        _until("both answer", lambda: all(self.client(server).ping() for server in self.servers))
        self.client(replica).replicaof("127.0.0.1", master.port)  # type: ignore[no-untyped-call]
        self.client(replica).config_rewrite()  # type: ignore[no-untyped-call]  # for its restart
        _until("the replica follows", lambda: self.replicas_of(master) == 1)
        watch = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {master.port} 2",
            f'sentinel auth-pass {SERVICE} "{PASSWORD}"',
            f"sentinel down-after-milliseconds {SERVICE} {int(DOWN_AFTER * 1000)}",
            f"sentinel failover-timeout {SERVICE} 3000",
            f'requirepass "{SENTINEL_PASSWORD}"',
            f'sentinel sentinel-pass "{SENTINEL_PASSWORD}"',
        ]
        names = [f"sentinel-{number}" for number in range(3)]
        self.sentinels = [Process(folder, name, watch, "--sentinel") for name in names]
        _until("the sentinels know each other", self._complete)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return (
            f"redis+sentinel://:p%40ss%3Aw%2Frd%2C%20of%20redis@{hosts}/{SERVICE}/0"
            "?sentinel_password=s3ntinel%2Fp%40ss"
        )

    def client(self, server: Process) -> Redis:
        return Redis(port=server.port, password=PASSWORD, socket_timeout=2)

    def master(self) -> Process:
        """The server that the sentinels name, and that calls itself the master."""
        (port,) = {int(self._known(sentinel)["port"]) for sentinel in self.sentinels}
        (server,) = [server for server in self.servers if server.port == port]
        return server

    def replicas_of(self, server: Process) -> int:
        return int(self.client(server).info("replication")["connected_slaves"])

    def until_replicated(self) -> None:
        """Wait until the other server follows the master, as after a restart of either."""
        _until("the replica follows", lambda: self.replicas_of(self.master()) == 1)

    def cut_off_replica(self) -> None:
        """What the master acknowledges from now on is not on the replica."""
        master = self.master()
        (replica,) = [server for server in self.servers if server is not master]
        self.client(replica).config_set("masterauth", "wrong")
        self.client(master).execute_command("CLIENT", "KILL", "TYPE", "replica")  # type: ignore[no-untyped-call]
        _until("the replica is cut off", lambda: self.replicas_of(master) == 0)

    def fail_over(self) -> Process:
        """Kill the master, and wait until the sentinels have made the replica the master."""
        before = self.master()
        before.kill()
        _until("another master", lambda: self._other_than(before), seconds=30)
        return before

    def stop(self) -> None:
        for process in (*self.servers, *self.sentinels):
            process.kill()

    def _other_than(self, before: Process) -> bool:
        now = self.master()
        return now is not before and self.client(now).role()[0] == b"master"

    def _known(self, sentinel: Process) -> dict[str, str]:
        with Redis(port=sentinel.port, password=SENTINEL_PASSWORD) as client:
            return dict(client.sentinel_master(SERVICE))  # type: ignore[no-untyped-call]

    def _complete(self) -> bool:
        facts = [self._known(sentinel) for sentinel in self.sentinels]
        return all(
            int(fact["num-other-sentinels"]) == 2 and int(fact["num-slaves"]) == 1 for fact in facts
        )


@contextmanager
def sentinels(folder: Path, *settings: str) -> Iterator[Sentinels]:
    """Start the processes; ``settings`` are further lines of the servers' configuration."""
    started = Sentinels(folder, *settings)
    try:
        yield started
    finally:
        started.stop()
