"""Host process of one verl replica, run with ``python -m``.

It reads the run's ``Config``, imports its libraries, reads a ``ReplicaSpec``, which may come much
later, reports phases and ``ReplicaReady``, and exits when its standard input is closed or a process
of the replica has ended. It is the Ray driver of its replica: whenever it exits, Ray kills the
actors and frees their placement.
"""

import asyncio
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from services.generator.backends.verl import cleanup, engine_config, facts
from services.generator.backends.verl.messages import (
    Cluster,
    EventWriter,
    Failed,
    Phase,
    ReplicaReady,
    ReplicaSpec,
)
from services.generator.backends.verl.model_folder import (
    ModelFolder,
    check_fits,
    local_folder,
    read_model_folder,
)
from services.generator.router.replica import NoPlacementError
from shared.config import Config
from shared.errors import ConfigError, PlumblineError, ServiceError

# After this time SIGALRM kills this process, and Ray frees everything that belongs to it.
_SHUTDOWN_SECONDS = 30
_CONNECT_SECONDS = 10
_JOIN_SECONDS = 60
_WATCH_SECONDS = 0.5
_UNAVAILABLE_SECONDS = 1.5


class _StopError(BaseException):
    """Raised on SIGTERM."""


def main() -> int:
    events = EventWriter()
    _on_sigterm()
    try:
        config = Config.model_validate_json(sys.stdin.readline())
        Host(config, events).run()
    except _StopError:
        return 0
    except PlumblineError as error:
        refused, unplaced = (isinstance(error, kind) for kind in (ConfigError, NoPlacementError))
        events.send(Failed(reason=str(error), refused=refused, unplaced=unplaced))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - verl, engines and Ray may raise anything
        import traceback

        traceback.print_exc()
        events.send(Failed(reason=_one_line(error)))
        return 2
    return 0


class Host:
    def __init__(self, config: Config, events: EventWriter) -> None:
        self._config = config
        self._events = events
        self._replica: Any = None

    def run(self) -> None:
        """Start the replica, report it, and keep it until standard input is closed.

        Raises:
            PlumblineError: The replica cannot be started.
        """
        with self._phase("imports"):
            self._import()
        with self._phase("checks"):
            model = self._model()
            if self._config.actor_rollout_ref.rollout.name == "sglang":
                self._check_sglang(model)
            else:
                self._check_architecture(model)
        if not (line := sys.stdin.readline()):
            return  # the service has ended
        self._spec = ReplicaSpec.model_validate_json(line)
        try:
            with self._phase("join"):
                self._join(self._spec.cluster)
            with self._phase("placement"):
                self._check_placement(self._spec.cluster)
            with self._phase("engine"):
                self._start()
            with self._phase("facts"):
                ready = self._ready(model)
            self._events.send(ready)
            self._watch()
        finally:
            self._shut_down()

    def _import(self) -> None:
        name = self._config.actor_rollout_ref.rollout.name
        try:
            import ray  # noqa: F401
            from verl.workers.rollout.replica import get_rollout_replica_class

            self._class = get_rollout_replica_class(name)
        except (ImportError, ValueError) as error:
            raise ServiceError(
                f"verl's {name} rollout cannot be loaded here ({_one_line(error)}); "
                f"see docs/generation.md for the required packages"
            ) from None

    def _model(self) -> ModelFolder:
        path = self._config.actor_rollout_ref.model.path
        model = read_model_folder(local_folder(path) or _download(path))
        check_fits(model, self._config)
        return model

    def _check_sglang(self, model: ModelFolder) -> None:
        from sglang.srt.parser.conversation import get_conv_template_by_model_path

        if self._config.generation.verl.chat_template:
            return
        # SGLang guesses from the folder's name, and would not use the model's own template.
        if own := get_conv_template_by_model_path(str(model.path)):
            raise ConfigError(
                f"actor_rollout_ref.model.path: SGLang would use its own chat template {own!r} for "
                f"a model in {model.path}; rename the folder, or name a Jinja file in "
                "generation.verl.chat_template"
            )

    def _check_architecture(self, model: ModelFolder) -> None:
        from vllm import ModelRegistry

        if model.architecture not in ModelRegistry.get_supported_archs():
            raise ConfigError(
                f"actor_rollout_ref.model.path: this vLLM does not support {model.architecture} "
                f"({model.path})"
            )

    def _join(self, cluster: Cluster) -> None:
        import ray

        _check_reachable(cluster.address)
        tag = {cleanup.TAG: self._spec.tag}
        with self._exit_on_timeout(f"Ray at {cluster.address} did not let this process join"):
            variables = engine_config.engine_variables(self._config, os.environ) | tag
            environment = {"env_vars": variables}
            ray.init(cluster.address, runtime_env=environment, logging_level="WARNING")
        _on_sigterm()  # Ray has installed its own handler

    def _check_placement(self, cluster: Cluster) -> None:
        """Check that the replica can be placed, because verl waits without a timeout."""
        import ray
        from ray.util.placement_group import placement_group, remove_placement_group

        rollout, trainer = self._config.actor_rollout_ref.rollout, self._config.trainer
        # The same bundles as verl's: one GPU and two CPUs per worker, packed per node.
        per_node = min(rollout.gpus_per_replica, trainer.n_gpus_per_node)
        nodes = rollout.gpus_per_replica // per_node
        groups = [
            placement_group([{"GPU": 1, "CPU": 2}] * per_node, strategy="STRICT_PACK")
            for _ in range(nodes)
        ]
        seconds = cluster.placement_timeout
        deadline = time.monotonic() + seconds
        placed = all(group.wait(max(0.1, deadline - time.monotonic())) for group in groups)
        total = ray.cluster_resources()
        for group in groups:
            remove_placement_group(group)
        if not placed:
            raise NoPlacementError(
                f"no placement within {seconds:g} s: replica {self._spec.rank} asks for "
                f"{per_node} GPUs and {2 * per_node} CPUs on "
                f"{'one node' if nodes == 1 else f'each of {nodes} nodes'}; the cluster has "
                f"{total.get('GPU', 0):g} GPUs and {total.get('CPU', 0):g} CPUs in all, other "
                "replicas' included"
            )

    def _start(self) -> None:
        from verl.utils.config import omega_conf_to_dataclass

        document = engine_config.compose(self._config, self._spec.rank)
        self._composed = document
        self._replica = self._class(
            replica_rank=self._spec.rank,
            config=omega_conf_to_dataclass(document.actor_rollout_ref.rollout),
            model_config=omega_conf_to_dataclass(document.actor_rollout_ref.model),
            gpus_per_node=self._config.trainer.n_gpus_per_node,
            name_suffix=self._spec.name,
        )
        asyncio.run(self._replica.init_standalone())

    def _ready(self, model: ModelFolder) -> ReplicaReady:
        return ReplicaReady(
            url=f"http://{self._replica.server_address}",
            facts=facts.gather(self._config, self._composed, model, self._replica),
            shm=cleanup.shared_memory(self._spec.tag),
        )

    def _watch(self) -> None:
        """Wait until standard input is closed, or until the replica cannot generate any more."""
        watch = _Watch(self._replica, self._spec.tag)
        while not select.select([sys.stdin], [], [], _WATCH_SECONDS)[0]:
            if reason := watch.loss():
                # At once: the shutdown may wait for a machine that is gone.
                self._events.send(Failed(reason=reason))
                return

    def _shut_down(self) -> None:
        import ray

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.alarm(_SHUTDOWN_SECONDS)
        if ray.is_initialized():
            if self._replica is not None:
                facts.on_nodes(self._replica, cleanup.sweep, self._spec.tag)
            ray.shutdown()

    @contextmanager
    def _exit_on_timeout(self, error: str) -> Iterator[None]:
        """Exit the process if a call into Ray does not return in time."""

        def exit_process() -> None:
            causes = "another version of Ray or of Python, or another RAY_AUTH_MODE?"
            self._events.send(Failed(reason=f"{error} within {_JOIN_SECONDS} s ({causes})"))
            os._exit(2)

        timer = threading.Timer(_JOIN_SECONDS, exit_process)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._events.send(Phase(phase=name, seconds=round(time.monotonic() - began, 2)))


class _Watch:
    """Watches the engine's processes and verl's actors on all machines of a replica.

    A router finds most deaths by itself when a request fails. Some show nothing: a replica that
    spans machines hangs if the distant one is gone, and an engine may answer only when its own
    time-outs are over.
    """

    def __init__(self, replica: Any, tag: str) -> None:
        import ray

        workers = facts.node_workers(replica)
        engines = ray.get([facts.call(worker, cleanup.engine_processes, tag) for worker in workers])
        checks = [
            *(partial(facts.call, *of) for of in zip(workers, repeat(cleanup.ended), engines)),
            *(partial(facts.call, actor, list) for actor in (*replica.workers, *replica.servers)),
        ]
        self._pending = {check(): check for check in checks}
        self._unavailable: dict[Callable[[], Any], float] = {}

    def loss(self) -> str:
        """Describe what has been lost since the last call; empty for nothing."""
        import ray
        from ray.exceptions import ActorUnavailableError, RayActorError

        # An engine that is busy answers late, which says nothing about its health.
        done, _ = ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        for result in done:
            check = self._pending.pop(result)
            try:
                if ended := ray.get(result):
                    return f"the engine's process {ended[0]} has ended"
                self._unavailable.pop(check, None)
            except ActorUnavailableError as error:
                # Ray takes 15 s to find out whether the machine is gone.
                now = time.monotonic()
                if now - self._unavailable.setdefault(check, now) > _UNAVAILABLE_SECONDS:
                    return f"an actor of the replica is out of reach: {_one_line(error)}"
            except RayActorError as error:
                return f"an actor of the replica has died: {_one_line(error)}"
            self._pending[check()] = check
        return ""


def _check_reachable(address: str) -> None:
    """Check the connection first, because Ray retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return  # such as "auto"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ServiceError(f"no Ray cluster at {address}: {error}") from None


def _download(name: str) -> Path:
    """Return the folder of a model from the Hugging Face hub; downloads it unless cached."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, ignore_patterns=["original/*", "*.pth"]))
    except Exception as error:  # noqa: BLE001 - many exception types of the HTTP libraries
        raise ConfigError(
            f"actor_rollout_ref.model.path: no folder {name!r}, and it cannot be downloaded from "
            f"the Hugging Face hub: {_one_line(error)}"
        ) from None


def _on_sigterm() -> None:
    def stop(*_: object) -> None:
        raise _StopError

    signal.signal(signal.SIGTERM, stop)


def _one_line(error: BaseException) -> str:
    """Describe the innermost cause in one line."""
    while isinstance(error.__cause__, BaseException):
        error = error.__cause__
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Do not wait for threads of Ray and torch.
    os._exit(code)
