"""Two Ray nodes: the manifests' pods in containers, with the commands that KubeRay gives them."""

import asyncio
import itertools
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.compose import kuberay
from tests.compose.pods import Machine, RunningPod
from tests.compose.stack import docker
from tests.e2e.verl import SMALL, Service, complete, wait_for
from tests.k8s.cluster import Cluster
from tools.k8s_validate import render, targets

pytestmark = [pytest.mark.nightly, pytest.mark.compose, pytest.mark.verl, pytest.mark.timeout(900)]

HEAD, SIDECAR, WORKER, GENERATOR = "ray-head", "ray-node", "ray-worker", "generator"
MODEL = "/opt/tiny-model"
# Of the size of a desktop: everything else is as the manifests have it.
SMALLER = (
    f"actor_rollout_ref.model.path={MODEL}",
    "trainer.n_gpus_per_node=1",
    "generation.verl.placement_timeout=120",
    "actor_rollout_ref.rollout.dtype=float32",
    "actor_rollout_ref.rollout.prompt_length=384",
    "actor_rollout_ref.rollout.response_length=512",
    *SMALL,
)
TENSOR = "actor_rollout_ref.rollout.tensor_model_parallel_size"
EJECTED_WITHIN = 60.0  # it takes 1 to 4 seconds on a quiet machine
# A machine that is gone may not say so. Probes find that out after 15 + 3 x 60 seconds, Ray before.
MACHINE_LOST_WITHIN = 240.0


class Nodes:
    """The pods of the Ray cluster and the generator, of the overlay ``gpu-multi-node``."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._ray = machine.cluster.one("RayCluster", "plumbline")
        (group,) = self._ray["spec"]["workerGroupSpecs"]
        (container,) = group["template"]["spec"]["containers"]
        container["resources"]["limits"]["nvidia.com/gpu"] = "1"
        self._numbers = itertools.count()
        names = (kuberay.service(self._ray), kuberay.full_name(self._ray))
        head = kuberay.head(self._ray)["spec"]
        self.head = RunningPod(machine, "plumbline-head", head, names)
        self.workers: list[RunningPod] = []
        self._generator = machine.cluster.pod("generator").spec
        (container,) = self._generator["containers"]
        self._settings: list[dict[str, str]] = container["env"]
        self.generator = RunningPod(machine, "generator", self._generator)
        assert group["replicas"] == 2

    def start(self) -> None:
        self.head.create()
        self.head.start(HEAD)
        self.generator.create()
        wait_joined(self.head, HEAD)
        self.generator.start(SIDECAR)
        with ThreadPoolExecutor() as together:
            list(together.map(lambda _: self.add_worker(), range(2)))
        for pod in self.workers:
            wait_joined(pod, WORKER)
        wait_joined(self.generator, SIDECAR)

    def add_worker(self) -> RunningPod:
        """A new pod, with an address of its own."""
        name = f"plumbline-gpu-worker-{next(self._numbers)}"
        pod = RunningPod(self._machine, name, kuberay.worker(self._ray)["spec"])
        pod.create()
        pod.run("wait-gcs-ready")
        pod.start(WORKER)
        self.workers.append(pod)
        return pod

    def ray_nodes(self) -> list[tuple[RunningPod, str]]:
        """Head and workers, each with the name of its container."""
        return [(self.head, HEAD), *((pod, WORKER) for pod in self.workers)]

    def lose(self, pod: RunningPod) -> None:
        """The end of a pod's machine."""
        self.workers.remove(pod)
        pod.remove()

    def worker_at(self, address: str) -> RunningPod:
        (found,) = (pod for pod in self.workers if pod.address == address)
        return found

    @contextmanager
    def served(self, *overrides: str) -> Iterator["GeneratorPod"]:
        """The generator's container with its own settings, for a smaller model."""
        (container,) = self._generator["containers"]
        container["env"] = [*self._settings_with(overrides)]
        self.generator.start(GENERATOR)
        service = GeneratorPod(self.generator)
        try:
            yield service
            tail = service.tail()
            assert self.generator.stop(GENERATOR) == 0, tail
        finally:
            docker("rm", "-f", self.generator.id(GENERATOR), check=False)

    def _settings_with(self, overrides: Sequence[str]) -> Iterator[dict[str, str]]:
        yield {"name": "PLUMBLINE_GENERATOR_ROUTER_RESTART_BACKOFF", "value": "0.1"}
        for one in self._settings:
            if one["name"] == "PLUMBLINE_GENERATOR_OVERRIDES":
                assert "trainer.nnodes=2" in one["value"]
                added = (f"'{override}'" for override in (*SMALLER, *overrides))
                yield {**one, "value": " ".join([one["value"], *added])}
            else:
                yield one


class GeneratorPod(Service):
    """The service in its pod."""

    def __init__(self, pod: RunningPod) -> None:
        self._pod = pod
        self._address = pod.address

    @property
    def url(self) -> str:
        return f"http://{self._address}:8000"

    def output(self) -> str:
        return self._pod.log(GENERATOR)

    def running(self) -> bool:
        return self._pod.running(GENERATOR) and not self._pod.restarts(GENERATOR)

    def address_of(self, rank: int) -> str:
        """The node on which a replica's engine answers."""
        (url,) = (one["url"] for one in self.replicas() if one["replica"] == rank)
        return str(url).removeprefix("http://").rpartition(":")[0]


@pytest.fixture(scope="module")
def packages(verl_python: Path) -> Path:
    """The folder of verl's packages, which are for the Python of the image."""
    ask = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_path('purelib'))"
    done = subprocess.run([verl_python, "-c", ask], capture_output=True, text=True, check=True)
    major, minor, folder = done.stdout.strip().split(" ", 2)
    if (major, minor) != ("3", "11"):
        pytest.skip(f"verl is installed for Python {major}.{minor}, and the image has 3.11")
    return Path(folder)


@pytest.fixture(scope="module")
def nodes(
    verl_image: str, packages: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nodes]:
    """Head, generator and two workers, with a GPU each that does not exist."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on the PATH")
    (target,) = (target for target in targets() if target.name == "gpu-multi-node")
    machine = Machine(
        Cluster(render(target)),
        verl_image,
        tmp_path_factory.mktemp("nodes"),
        secrets={"plumbline-ray": {"token": "0123456789abcdef" * 4}},
        mounts=[f"{packages}:/opt/packages:ro", f"{tiny_model}:{MODEL}:ro"],
    )
    with ExitStack() as stack:
        stack.callback(machine.remove)
        machine.start()
        found = Nodes(machine)
        found.start()
        yield found


async def answers_while(
    service: GeneratorPod, worker: RunningPod, ejected: str
) -> Sequence[Mapping[str, Any]]:
    """Send requests all the time while a node is killed, until its replica is ejected."""
    found: list[Mapping[str, Any]] = []
    killed = 0.0
    while True:
        found += await complete(service.url, 8, max_tokens=16)
        if not killed:
            await asyncio.to_thread(worker.kill, WORKER)
            killed = time.monotonic()
        elif any(one["name"] == ejected for one in service.events("ejected")):
            return found
        assert not killed or time.monotonic() < killed + EJECTED_WITHIN, service.tail()


def test_a_replica_on_each_node(nodes: Nodes) -> None:
    """A node that dies takes its replica with it, which comes back when the node does."""
    with nodes.served(f"{TENSOR}=1") as service:
        service.wait_healthy()
        addresses = {service.address_of(rank) for rank in (0, 1)}
        assert addresses == {pod.address for pod in nodes.workers}
        assert len(service.get("/info")["hardware"]) == 1
        check_probes(nodes)
        check_shared_memory(nodes)
        lost = nodes.worker_at(service.address_of(1))
        answers = asyncio.run(answers_while(service, lost, "vllm-1"))
        assert {one["status"] for one in answers} == {200}
        after = asyncio.run(complete(service.url, 8, max_tokens=4))
        assert {one["replica"] for one in after} == {"vllm-0"}
        assert not lost.succeeds(WORKER, "liveness")
        lost.start_again(WORKER)
        service.wait_healthy(1)
        assert service.address_of(1) == lost.address
        both = asyncio.run(complete(service.url, 20, max_tokens=4))
        names = {one["replica"] for one in both}
        assert len(names) == 2
        assert {name.partition(".")[0] for name in names} == {"vllm-0", "vllm-1"}
        assert not [one for one in service.events("ejected") if one["name"] == "vllm-0"]
    check_no_engine(nodes)


def test_a_replica_across_both_nodes(nodes: Nodes) -> None:
    """Tensor parallelism of two; without one of its nodes there is no replica."""
    with nodes.served(f"{TENSOR}=2") as service:
        service.wait_healthy(count=1)
        assert len(service.get("/info")["hardware"]) == 2
        (check,) = service.events("self-check")
        assert not check["looks_random"]
        assert {one["status"] for one in asyncio.run(complete(service.url, 8))} == {200}
        first = service.address_of(0)
        (other,) = (pod for pod in nodes.workers if pod.address != first)
        nodes.lose(other)
        ejected = partial(service.events, "ejected")
        wait_for(lambda: bool(ejected()), "ejection", service.tail, MACHINE_LOST_WITHIN)
        nodes.add_worker()
        service.wait_healthy(0, count=1)
        assert {one["status"] for one in asyncio.run(complete(service.url, 8))} == {200}
    check_no_engine(nodes)


def wait_joined(pod: RunningPod, container: str) -> None:
    """Wait for the startup probe, and for the rest of Ray, which listens before it is complete."""
    pod.wait(container)
    started = "Ray runtime started"
    wait_for(lambda: started in pod.log(container), started, lambda: pod.log(container)[-3000:])


def check_shared_memory(nodes: Nodes) -> None:
    """Ray puts no object store on disk, as it does where shared memory is too small."""
    for pod, container in [*nodes.ray_nodes(), (nodes.generator, SIDECAR)]:
        assert "instead of /dev/shm" not in pod.log(container), pod.name


def check_probes(nodes: Nodes) -> None:
    """The kubelet finds every container as it should be."""
    for pod, container in [*nodes.ray_nodes(), (nodes.generator, GENERATOR)]:
        for probe in ("startup", "readiness", "liveness"):
            assert pod.succeeds(container, probe), (pod.name, probe, pod.log(container)[-3000:])


def check_no_engine(nodes: Nodes) -> None:
    """The engines end with the service."""

    def left() -> Sequence[str]:
        found = (one for pod in nodes.workers for one in pod.processes(WORKER))
        return [one for one in found if "VLLM::" in one]

    wait_for(lambda: not left(), "end of the engines", lambda: "\n".join(left()), seconds=10)
