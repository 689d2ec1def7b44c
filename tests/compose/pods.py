"""Pods of rendered manifests as containers, as far as Docker can express them.

As with Kubernetes, a container that does nothing holds what the containers of a pod share: address,
shared memory and, where the pod asks for it, processes. Users, read-only root filesystems,
capabilities, limits of memory, volumes and probes are as in the manifest. Left out are limits of
CPUs, because Docker refuses more than the machine has, sizes of volumes on disk, and all that says
to which machine a pod goes.
"""

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.compose.stack import docker
from tests.k8s.cluster import Cluster, Document, env_of

_SHM = "/dev/shm"
_UNITS = {"Mi": "m", "Gi": "g"}
# Where a pod runs, and whose account it has: nothing for Docker.
_NOTHING = {
    "affinity", "tolerations", "serviceAccountName", "automountServiceAccountToken",
    "enableServiceLinks",
}  # fmt: skip
_KNOWN = _NOTHING | {
    "containers", "initContainers", "volumes", "securityContext", "shareProcessNamespace",
    "terminationGracePeriodSeconds",
}  # fmt: skip


@dataclass
class Machine:
    """A Docker network with pods on it.

    Attributes:
        cluster: The manifests, for the ConfigMaps that pods mount.
        image: The image of all containers.
        folder: Where the files of Secrets and ConfigMaps are written.
        secrets: Files of the Secrets that exist, by the Secret's name.
        mounts: Further ``--volume`` arguments, for all containers.
    """

    cluster: Cluster
    image: str
    folder: Path
    secrets: Mapping[str, Mapping[str, str]]
    mounts: Sequence[str] = ()
    name: str = field(default_factory=lambda: f"plumblinepods-{os.getpid()}")

    @property
    def label(self) -> str:
        return f"org.plumbline.pods={self.name}"

    def start(self) -> None:
        docker("network", "create", "--label", self.label, self.name)

    def remove(self) -> None:
        """Remove containers, volumes and the network."""
        ours = ("-q", "--filter", f"label={self.label}")
        docker("rm", "-f", "-v", *docker("ps", "-a", *ours).split(), check=False)
        docker("volume", "rm", *docker("volume", "ls", *ours).split(), check=False)
        docker("network", "rm", self.name, check=False)

    def files(self, name: str, contents: Mapping[str, str]) -> Path:
        """A folder for a ConfigMap or Secret."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in contents.items():
            (folder / file).write_text(text)
        return folder


class RunningPod:
    """A pod; its containers are started one by one, as the kubelet would when it is told to."""

    def __init__(
        self, machine: Machine, name: str, spec: Document, aliases: Sequence[str] = ()
    ) -> None:
        assert spec.keys() <= _KNOWN, spec.keys() - _KNOWN
        self.name = name
        self._machine, self._spec, self._aliases = machine, spec, aliases
        containers = [*spec.get("initContainers", []), *spec["containers"]]
        self._containers: dict[str, Document] = {one["name"]: one for one in containers}
        self._volumes = {one["name"]: one for one in spec["volumes"]}

    def create(self) -> None:
        """Make the pod, with an address and without containers."""
        names = [word for alias in self._aliases for word in ("--network-alias", alias)]
        shared = [word for size in self._shared_memory() for word in ("--shm-size", size)]
        docker(
            "run", "-d", "--no-healthcheck", "--name", self._sandbox, "--hostname", self.name,
            "--network", self._machine.name, *names, "--ipc", "shareable", *shared,
            "--label", self._machine.label, "--entrypoint", "tini", self._machine.image,
            "--", "sleep", "infinity",
        )  # fmt: skip

    def start(self, container: str) -> None:
        """Start a container; should it exit, it is started again."""
        self._run(self._containers[container], ("-d", "--restart", "always"))

    def run(self, container: str) -> None:
        """Run an init container to its end."""
        self._run(self._containers[container], ("--rm",))

    def kill(self, container: str) -> None:
        """SIGKILL for all processes of a container; they do not come back on their own."""
        docker("kill", self.id(container))

    def start_again(self, container: str) -> None:
        docker("start", self.id(container))

    def stop(self, container: str) -> int:
        """End a container as a pod's are ended, and return its exit code."""
        grace = self._spec.get("terminationGracePeriodSeconds", 30)
        docker("stop", "-t", str(grace), self.id(container))
        code = docker("inspect", "-f", "{{.State.ExitCode}}", self.id(container))
        docker("rm", "-v", self.id(container))
        return int(code)

    def remove(self) -> None:
        """End the whole pod at once, as when its node fails; its volumes are gone too."""
        ours = ("-aq", "--filter", f"label={self._label}")
        docker("rm", "-f", "-v", *docker("ps", *ours).split(), self._sandbox)
        for name in self._volumes:
            docker("volume", "rm", self._volume(name), check=False)

    @property
    def address(self) -> str:
        path = f'{{{{(index .NetworkSettings.Networks "{self._machine.name}").IPAddress}}}}'
        return docker("inspect", "-f", path, self._sandbox)

    def running(self, container: str) -> bool:
        return docker("inspect", "-f", "{{.State.Running}}", self.id(container)) == "true"

    def restarts(self, container: str) -> int:
        return int(docker("inspect", "-f", "{{.RestartCount}}", self.id(container)))

    def processes(self, container: str) -> list[str]:
        """Command lines."""
        return docker("top", self.id(container), "-eo", "pid,args").splitlines()[1:]

    def log(self, container: str) -> str:
        """What it printed, on both streams, since it was created."""
        command = ["docker", "logs", self.id(container)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.stdout

    def succeeds(self, container: str, probe: str) -> bool:
        """Send one of the container's probes (``startup``, ``readiness``, ``liveness``)."""
        found = self._containers[container][f"{probe}Probe"]
        seconds = found.get("timeoutSeconds", 1)
        try:
            if "tcpSocket" in found:
                socket.create_connection(
                    (self.address, found["tcpSocket"]["port"]), seconds
                ).close()
                return True
            get = found["httpGet"]
            port = self._port(container, get["port"])
            connection = http.client.HTTPConnection(self.address, port, timeout=seconds)
            connection.request("GET", get["path"])
            return 200 <= connection.getresponse().status < 400
        except OSError:
            return False

    def wait(self, container: str, probe: str = "startup", seconds: float = 240) -> None:
        """Wait until a probe succeeds."""
        give_up = time.monotonic() + seconds
        while not self.succeeds(container, probe):
            assert time.monotonic() < give_up, f"{self.name}: {self.log(container)[-3000:]}"
            time.sleep(0.2)

    def _port(self, container: str, named: str) -> int:
        ports = self._containers[container]["ports"]
        return next(int(one["containerPort"]) for one in ports if one["name"] == named)

    @property
    def _sandbox(self) -> str:
        return f"{self._machine.name}-{self.name}"

    @property
    def _label(self) -> str:
        return f"org.plumbline.pod={self._sandbox}"

    def id(self, container: str) -> str:
        """The name of the container in Docker."""
        return f"{self._sandbox}-{container}"

    def _volume(self, name: str) -> str:
        return f"{self._sandbox}-{name}"

    def _run(self, container: Document, how: Sequence[str]) -> None:
        (entrypoint, *arguments) = [*container.get("command", [""]), *container.get("args", [])]
        docker(
            "run", *how, "--no-healthcheck", "--name", self.id(container["name"]),
            "--label", self._label, "--label", self._machine.label,
            *self._namespaces(), *self._security(container), *self._memory(container),
            *self._mounts(container), *_environment(container),
            *(["--entrypoint", entrypoint] if entrypoint else []), self._machine.image, *arguments,
        )  # fmt: skip

    def _namespaces(self) -> list[str]:
        sandbox = f"container:{self._sandbox}"
        shared = ["--network", sandbox, "--ipc", sandbox]
        return [*shared, *(["--pid", sandbox] if self._spec.get("shareProcessNamespace") else [])]

    def _security(self, container: Document) -> list[str]:
        """The options for the security contexts of pod and container, which must be as expected."""
        match self._spec["securityContext"], container["securityContext"]:
            case (
                {
                    "runAsNonRoot": True,
                    "runAsUser": int(user),
                    "runAsGroup": int(group),
                    "fsGroup": int(files),
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            ) if user:
                return [
                    "--user", f"{user}:{group}", "--group-add", str(files), "--read-only",
                    "--security-opt", "no-new-privileges", "--cap-drop", "ALL",
                ]  # fmt: skip
        raise AssertionError(f"{self.name}: {container['name']} has more rights than it should")

    @staticmethod
    def _memory(container: Document) -> list[str]:
        return ["--memory", _size(container["resources"]["limits"]["memory"])]

    def _mounts(self, container: Document) -> list[str]:
        own = filter(None, (self._mount(one) for one in container["volumeMounts"]))
        return [word for one in (*own, *self._machine.mounts) for word in ("-v", one)]

    def _mount(self, mount: Mapping[str, Any]) -> str:
        path, volume = mount["mountPath"], self._volumes[mount["name"]]
        assert not mount.keys() - {"name", "mountPath", "readOnly"}
        mode = "ro" if mount.get("readOnly") else "rw"
        match volume:
            case {"emptyDir": {"medium": "Memory"}}:
                assert path == _SHM
                return ""  # the sandbox has it
            case {"emptyDir": _}:
                return f"{self._labelled(self._volume(mount['name']))}:{path}:{mode}"
            case {"persistentVolumeClaim": {"claimName": str(claim)}}:
                return f"{self._labelled(f'{self._machine.name}-{claim}')}:{path}:{mode}"
            case {"configMap": {"name": str(name)}}:
                contents = self._machine.cluster.one("ConfigMap", name)["data"]
                return f"{self._machine.files(name, contents)}:{path}:{mode}"
            case {"secret": {"secretName": str(name), "items": list(items), **rest}}:
                secret = self._machine.secrets.get(name)
                assert secret is not None or rest.get("optional"), name
                contents = {one["path"]: secret[one["key"]] for one in items} if secret else {}
                return f"{self._machine.files(name, contents)}:{path}:{mode}"
        raise AssertionError(f"{self.name}: nothing known of the volume {volume}")

    def _labelled(self, volume: str) -> str:
        docker("volume", "create", "--label", self._machine.label, volume)
        return volume

    def _shared_memory(self) -> list[str]:
        return [
            _size(one["emptyDir"]["sizeLimit"])
            for one in self._volumes.values()
            if one.get("emptyDir", {}).get("medium") == "Memory"
        ]


def _size(quantity: str) -> str:
    """A quantity of Kubernetes in Docker's units."""
    return quantity[:-2] + _UNITS[quantity[-2:]]


def _environment(container: Document) -> list[str]:
    assert all("valueFrom" not in one for one in container["env"])
    given = (f"{name}={value}" for name, value in env_of(container).items())
    return [word for one in given for word in ("-e", one)]
