"""The generation service with real verl, vLLM and Ray on the CPU, as a separate process."""

import asyncio
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "demo_verl.yaml"
READY_SECONDS = 300.0
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# Lengths that suit the tiny model, and engines small enough for a desktop.
SMALL = (
    "generation.verl.cpu_engine=true",
    "actor_rollout_ref.rollout.max_num_seqs=32",
    "actor_rollout_ref.rollout.max_num_batched_tokens=2048",
    "actor_rollout_ref.rollout.engine_kwargs.vllm={kv_cache_memory_bytes: 134217728}",
)


class Mark:
    """Finds what a service leaves behind: processes by a variable that they inherit, and files.

    What else runs on the machine does not count, but for shared memory of others that comes
    meanwhile.
    """

    _NAME = "PLUMBLINE_TEST_MARK"

    def __init__(self) -> None:
        self._value = uuid.uuid4().hex
        self._files = self._files_now()

    @property
    def variable(self) -> dict[str, str]:
        return {self._NAME: self._value}

    def left(self) -> list[str]:
        """Command lines and paths."""
        marked = [p for p in psutil.process_iter(["cmdline"]) if self._has(p)]
        files = self._files_now() - self._files
        return [" ".join(p.info["cmdline"] or [p.name()]) for p in marked] + sorted(files)

    def check_clean(self) -> None:
        """Fail where something is still left after a moment."""
        wait_for(lambda: not self.left(), "clean machine", lambda: str(self.left()), seconds=10)

    def _has(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(self._NAME) == self._value
        except psutil.Error:
            return False

    @staticmethod
    def _files_now() -> set[str]:
        shared = {str(p) for p in Path("/dev/shm").iterdir() if p.name.startswith(("psm_", "sem."))}
        return shared | {str(path) for path in Path("/tmp").glob("pl-ray-*")}


def command_environment(config: Path, overrides: Sequence[str], **settings: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {
        **kept,
        **_OFFLINE,
        "PYTHONPATH": str(ROOT),
        "PLUMBLINE_GENERATOR_BACKEND": "verl",
        "PLUMBLINE_GENERATOR_CONFIG": str(config),
        "PLUMBLINE_GENERATOR_OVERRIDES": " ".join(f"'{override}'" for override in overrides),
        **settings,
    }


def refused(
    python: Path, config: Path, *overrides: str, seconds: float = 120, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a service that is expected to refuse its settings."""
    return subprocess.run(
        [python, "-m", "services.generator"],
        env=command_environment(config, overrides, **settings),
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=ROOT,
    )


class Generator:
    """The service as a child process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port_file: Path) -> None:
        self.process = process
        self.log = log
        self._port_file = port_file

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port_file.read_text().strip()}"

    def running(self) -> bool:
        return self.process.poll() is None

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as response:
            body = response.read().decode()
        return json.loads(body) if body.startswith(("{", "[")) else body

    def replicas(self) -> list[dict[str, Any]]:
        try:
            return list(self.get("/readyz")["replicas"])
        except urllib.error.HTTPError as error:
            return list(json.load(error)["replicas"])
        except (OSError, ValueError):
            return []

    def wait_healthy(self, *again: int, count: int = 2) -> None:
        """Wait until all replicas serve, and those of the given ranks were started again."""

        def healthy() -> bool:
            assert self.running(), self.tail()
            replicas = self.replicas()
            new = {replica["replica"] for replica in replicas if replica["generation"]}
            return (
                len(replicas) == count
                and {replica["state"] for replica in replicas} == {"healthy"}
                and new >= {*again}
            )

        wait_for(healthy, f"healthy replicas, {again} again", self.tail)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{")
        return [line for line in lines if line["event"] == name]

    def answered(self) -> float:
        """Requests that got their answer, so far."""
        for line in str(self.get("/metrics")).splitlines():
            if line.startswith("plumbline_generator_requests_total{") and 'answered"' in line:
                return float(line.split()[-1])
        return 0.0

    def tail(self) -> str:
        return self.log.read_text()[-6000:]

    def engine(self, rank: int) -> psutil.Process:
        """The process in which a replica's engine runs."""
        (tag,) = (
            replica["facts"]["tag"] for replica in self.replicas() if replica["replica"] == rank
        )
        for process in psutil.process_iter(["cmdline"]):
            if "EngineCore" in " ".join(process.info["cmdline"] or ()) and tag_of(process) == tag:
                return process
        raise AssertionError(f"replica {rank} has no engine process")


@contextmanager
def generator(
    python: Path, folder: Path, config: Path, *overrides: str, **settings: str
) -> Iterator[Generator]:
    """Start a service; on the way out it gets SIGTERM and has to end in order."""
    folder.mkdir(parents=True, exist_ok=True)
    log, port_file = folder / "generator.log", folder / "port"
    environment = command_environment(config, overrides, **settings)
    environment |= {"PLUMBLINE_PORT_FILE": str(port_file), "LOG_LEVEL": "INFO"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", "services.generator"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )
    try:
        wait_for(lambda: port_file.exists() or process.poll() is not None, "a port", seconds=60)
        yield Generator(process, log, port_file)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()


def tag_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("PLUMBLINE_REPLICA_TAG")
    except psutil.Error:
        return None


def wait_for(
    done: Callable[[], bool],
    what: str,
    tail: Callable[[], str] = str,
    seconds: float = READY_SECONDS,
) -> None:
    give_up = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < give_up, f"no {what} after {seconds:.0f} s\n{tail()}"
        time.sleep(0.2)


async def complete(url: str, count: int, **request: Any) -> list[dict[str, Any]]:
    """Send a number of chat completions at once; an answer's status is put beside its body."""

    async def one(session: aiohttp.ClientSession, number: int) -> dict[str, Any]:
        message = {"role": "user", "content": f"Write a program, number {number}"}
        body = {"messages": [message], "temperature": 0, **request}
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            replica = response.headers.get("X-Plumbline-Replica")
            return {"status": response.status, "replica": replica, **await response.json()}

    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        return await asyncio.gather(*(one(session, number) for number in range(count)))
