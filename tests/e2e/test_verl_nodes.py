"""Two Ray nodes, started as KubeRay starts the manifests' pods, but as processes on loopback."""

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from shared.service.processes import free_port
from tests.e2e.verl import ROOT, SMALL, Generator, Mark, complete, generator, wait_for
from tests.k8s.cluster import Cluster, env_of
from tools.k8s_validate.render import render, targets

pytestmark = [pytest.mark.verl, pytest.mark.e2e, pytest.mark.timeout(900)]

HEAD, WORKERS, SIDECAR = "127.0.0.2", ("127.0.0.3", "127.0.0.4"), "127.0.0.5"
SERVICE, PORT, NODE_PORT = "plumbline-head-svc", 6379, 6380
# Of the size of a desktop: everything else is as the manifests have it.
SMALLER = (
    "trainer.n_gpus_per_node=1",
    "generation.verl.placement_timeout=120",
    "actor_rollout_ref.rollout.dtype=float32",
    "actor_rollout_ref.rollout.prompt_length=384",
    "actor_rollout_ref.rollout.response_length=512",
    *SMALL,
)
TENSOR = "actor_rollout_ref.rollout.tensor_model_parallel_size"
STARTS = 3
GRACE = 10.0
EJECTED_WITHIN = 60.0  # it takes 1 to 4 seconds on a quiet machine


class Manifests:
    """Commands and environments of the containers that make up the Ray cluster."""

    def __init__(self, python: Path, folder: Path) -> None:
        (target,) = (target for target in targets() if target.name == "gpu-multi-node")
        self._cluster = Cluster(render(target))
        self._ray = self._cluster.one("RayCluster", "plumbline")["spec"]
        self._python, self._folder = python, folder
        # Nodes share a machine here, so each has ports of its own.
        self._ports = {address: free_port() for address in (HEAD, *WORKERS, SIDECAR)}
        folder.mkdir()
        (folder / "token").write_text("0123456789abcdef" * 4)

    def head(self) -> tuple[list[str], dict[str, str]]:
        group = self._ray["headGroupSpec"]
        added = {"head": "true", "port": str(self._ports[HEAD])}
        return self._ray_pod(group, HEAD, added)

    def worker(self, address: str) -> tuple[list[str], dict[str, str]]:
        (group,) = self._ray["workerGroupSpecs"]
        (container,) = group["template"]["spec"]["containers"]
        container["resources"]["limits"]["nvidia.com/gpu"] = "1"
        return self._ray_pod(group, address, {"address": f"{SERVICE}:{PORT}"})

    def sidecar(self) -> tuple[list[str], dict[str, str]]:
        (container,) = self._cluster.pod("generator").spec["initContainers"]
        (python, *arguments) = container["command"]
        assert python == "python3"
        command = [str(self._python), *arguments, *self._own(SIDECAR)]
        return [self._local(word, SIDECAR) for word in command], self._environment(
            container, SIDECAR
        )

    def generator(self) -> dict[str, str]:
        (container,) = self._cluster.pod("generator").spec["containers"]
        found = self._environment(container, SIDECAR)
        return {**found, "HOST": "127.0.0.1", "PORT": "0"}

    def port(self, address: str) -> int:
        """The port that the startup probe of a node's container connects to."""
        return self._ports[address]

    def _ray_pod(
        self, group: Mapping[str, Any], address: str, added: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """KubeRay's command: the parameters given, and those that it adds from the resources."""
        (container,) = group["template"]["spec"]["containers"]
        limits = container["resources"]["limits"]
        parameters = {
            "num-cpus": limits["cpu"],
            "num-gpus": limits.get("nvidia.com/gpu", "0"),
            "memory": str(int(limits["memory"].removesuffix("Gi")) << 30),
            "block": "true",
            **added,
            **group["rayStartParams"],
        }
        flags = [_flag(name, value) for name, value in parameters.items()]
        command = ["ray", "start", *filter(None, flags), *self._own(address)]
        return [self._local(word, address) for word in command], self._environment(
            container, address
        )

    def _own(self, address: str) -> list[str]:
        """What a pod has of its own, and processes of one machine share."""
        own = [f"--node-ip-address={address}", "--temp-dir=/tmp/ray"]
        return [*own, "--min-worker-port=0", "--max-worker-port=0"]

    def _environment(self, container: Mapping[str, Any], address: str) -> dict[str, str]:
        given = {
            name: self._local(value, address) for name, value in env_of(dict(container)).items()
        }
        if "PATH" not in given:
            given["PATH"] = f"{self._python.parent}:{os.environ['PATH']}"
        for name in ("HOME", "HF_HOME"):
            if name in given:
                Path(given[name]).mkdir(parents=True, exist_ok=True)
        return given

    def _local(self, text: str, address: str) -> str:
        """Replace a pod's paths, names and ports by those of this machine."""
        own = self._folder / address.rpartition(".")[2]
        for theirs, ours in (
            (f"{SERVICE}:{PORT}", f"{HEAD}:{self._ports[HEAD]}"),
            (f"port={NODE_PORT}", f"port={self._ports[address]}"),
            ("/run/secrets/ray/token", str(self._folder / "token")),
            ("/opt/verl/bin", str(self._python.parent)),
            ("/app/", f"{ROOT}/"),
            ("/models", str(own / "models")),
            ("/tmp/ray", str(own / "r")),
        ):
            text = text.replace(theirs, ours)
        return str(own / "home") if text == "/tmp" else text


def _flag(name: str, value: str) -> str:
    """As KubeRay writes a parameter: true and false are flags, but for two options."""
    if value in ("true", "false") and name not in ("log-color", "include-dashboard"):
        return f"--{name}" if value == "true" else ""
    return f"--{name}={value}"


class Nodes:
    """The running nodes by address."""

    def __init__(self, manifests: Manifests, mark: Mark, logs: Path) -> None:
        self.manifests = manifests
        self._mark, self._logs = mark, logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *addresses: str) -> None:
        """Start containers, again if they exit, until their startup probes succeed."""
        give_up = time.monotonic() + 240
        starts = dict.fromkeys(addresses, 0)
        while waiting := [one for one in addresses if not self._listens(one)]:
            assert time.monotonic() < give_up, self.log(waiting[0])
            for one in waiting:
                if one not in self._processes or self._processes[one].poll() is not None:
                    assert starts[one] < STARTS, self.log(one)
                    starts[one] += 1
                    self._spawn(one)
            time.sleep(0.2)

    def kill(self, address: str) -> None:
        """SIGKILL for everything on the node, as when its machine fails."""
        process = self._processes.pop(address)
        for one in _descendants(psutil.Process(process.pid)):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.kill()
        process.wait()

    def log(self, address: str) -> str:
        return (self._logs / address).read_text()[-3000:]

    def stop(self) -> None:
        """As a pod ends: SIGTERM, and after the grace period SIGKILL for all that is left."""
        started = self._processes.values()
        running = [psutil.Process(one.pid) for one in started if one.poll() is None]
        everything = [*running, *(one for root in running for one in _descendants(root))]
        for process in running:
            process.terminate()
        _, left = psutil.wait_procs(everything, GRACE)
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(left, GRACE)

    def _spawn(self, address: str) -> None:
        manifests = self.manifests
        if address == HEAD:
            command, environment = manifests.head()
        elif address == SIDECAR:
            command, environment = manifests.sidecar()
        else:
            command, environment = manifests.worker(address)
        with (self._logs / address).open("ab") as log:
            self._processes[address] = subprocess.Popen(
                command, env={**environment, **self._mark.variable}, stdout=log, stderr=log
            )

    def _listens(self, address: str) -> bool:
        try:
            port = self.manifests.port(address)
            socket.create_connection((address, port), timeout=1).close()
        except OSError:
            return False
        return address in self._processes and self._processes[address].poll() is None


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def nodes(verl_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Head, two workers with a GPU each that does not exist, and the generator's own node."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on the PATH")
    mark, logs = Mark(), tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        # A short path, because paths of Unix sockets are limited to about 100 bytes.
        folder = Path("/tmp") / f"pl-n{os.getpid()}"
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = Nodes(Manifests(verl_python, folder), mark, logs)
        stack.callback(mark.check_clean)
        stack.callback(cluster.stop)
        cluster.start(HEAD)
        cluster.start(*WORKERS, SIDECAR)
        yield cluster


@contextmanager
def served(
    nodes: Nodes, python: Path, model: Path, folder: Path, *overrides: str
) -> Iterator[Generator]:
    """The generator with its container's settings, for a smaller model."""
    settings = nodes.manifests.generator()
    config = Path(settings["PLUMBLINE_GENERATOR_CONFIG"])
    words = [f"actor_rollout_ref.model.path={model}", *SMALLER, *overrides]
    given = settings["PLUMBLINE_GENERATOR_OVERRIDES"]
    assert "trainer.nnodes=2" in given
    settings["PLUMBLINE_GENERATOR_OVERRIDES"] = " ".join([given, *(f"'{one}'" for one in words)])
    settings["PLUMBLINE_GENERATOR_ROUTER_RESTART_BACKOFF"] = "0.1"
    with generator(python, folder, config, **settings) as running:
        yield running


def address_of(service: Generator, rank: int) -> str:
    """The node on which a replica's engine answers."""
    (url,) = (one["url"] for one in service.replicas() if one["replica"] == rank)
    return str(url).removeprefix("http://").rpartition(":")[0]


async def answers_while(
    service: Generator, nodes: Nodes, address: str, ejected: str
) -> Sequence[Mapping[str, Any]]:
    """Send requests all the time while a node is killed, until its replica is ejected."""
    found: list[Mapping[str, Any]] = []
    killed = 0.0
    while True:
        found += await complete(service.url, 8, max_tokens=16)
        if not killed:
            await asyncio.to_thread(nodes.kill, address)
            killed = time.monotonic()
        elif any(one["name"] == ejected for one in service.events("ejected")):
            return found
        assert not killed or time.monotonic() < killed + EJECTED_WITHIN, service.tail()


def test_a_replica_on_each_node(
    nodes: Nodes, verl_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """A node that dies takes its replica with it, which comes back when the node does."""
    with served(nodes, verl_python, tiny_model, tmp_path, f"{TENSOR}=1") as service:
        service.wait_healthy()
        assert sorted(address_of(service, rank) for rank in (0, 1)) == sorted(WORKERS)
        assert len(service.get("/info")["hardware"]) == 1
        lost = address_of(service, 1)
        answers = asyncio.run(answers_while(service, nodes, lost, "vllm-1"))
        assert {one["status"] for one in answers} == {200}
        after = asyncio.run(complete(service.url, 8, max_tokens=4))
        assert {one["replica"] for one in after} == {"vllm-0"}
        nodes.start(lost)
        service.wait_healthy(1)
        assert address_of(service, 1) == lost
        both = asyncio.run(complete(service.url, 20, max_tokens=4))
        names = {one["replica"] for one in both}
        assert len(names) == 2
        assert {name.partition(".")[0] for name in names} == {"vllm-0", "vllm-1"}
        assert not [one for one in service.events("ejected") if one["name"] == "vllm-0"]


def test_a_replica_across_both_nodes(
    nodes: Nodes, verl_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Tensor parallelism of two; without one of its nodes there is no replica."""
    with served(nodes, verl_python, tiny_model, tmp_path, f"{TENSOR}=2") as service:
        service.wait_healthy(count=1)
        assert len(service.get("/info")["hardware"]) == 2
        (check,) = service.events("self-check")
        assert not check["looks_random"]
        assert {one["status"] for one in asyncio.run(complete(service.url, 8))} == {200}
        (other,) = set(WORKERS) - {address_of(service, 0)}
        nodes.kill(other)
        wait_for(lambda: bool(service.events("ejected")), "ejection", service.tail, EJECTED_WITHIN)
        nodes.start(other)
