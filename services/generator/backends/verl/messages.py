"""Messages between the service and its child processes, as JSON lines."""

import json
import os
import sys
from typing import Annotated, Literal, TextIO

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# From the service to a child


class ClusterSpec(_Message):
    """Ray cluster to start, with a folder for sockets and logs, and at least ``needed`` GPUs.

    ``gpus`` is the number of GPUs to declare, None to detect them.
    """

    folder: str
    gpus: int | None
    cpus: int
    needed: int


class Cluster(_Message):
    """Ray cluster to join; ``placement_timeout`` is seconds for a replica's placement."""

    address: str
    placement_timeout: float


class ReplicaSpec(_Message):
    """Replica to start; ``name`` distinguishes it in Ray's lists, ``tag`` marks its processes."""

    rank: int
    name: str
    tag: str
    cluster: Cluster


# Facts about a replica, for ``/info``


class Hardware(_Message):
    """GPUs (name, driver, memory) as nvidia-smi lists them, and the name of the CPU."""

    gpus: list[str]
    cpu: str | None = None


class ModelFacts(_Message):
    """``weights`` are bytes by file name; ``revision`` is the commit on the hub, if known."""

    architecture: str
    context: int | None
    config_sha256: str
    weights: dict[str, int]
    revision: str | None = None


class SelfCheckFacts(_Message):
    """Result of the self-check on a number of tokens.

    ``mean_logprob`` is that of the known text, in nats per token. ``order_preference`` is the
    probability that a random token of the text has a higher log-probability than a random token of
    the shuffled text (the area under the ROC curve): 0.5 for a model that ignores order.
    """

    mean_logprob: float
    order_preference: float
    tokens: int
    looks_random: bool


class ReplicaFacts(_Message):
    """``config`` has verl's resolved sections model and rollout; verl defines their keys."""

    engine: str
    versions: dict[str, str]
    hardware: list[Hardware]
    config: dict[str, object]
    environment: dict[str, str]
    model: ModelFacts
    chat_template: str
    chat_template_sha256: str
    self_check: SelfCheckFacts | None = None


# From a child to the service


class Phase(_Message):
    """A finished step of the start; ``seconds`` is its duration."""

    kind: Literal["phase"] = "phase"
    phase: str
    seconds: float


class ClusterReady(_Message):
    kind: Literal["cluster"] = "cluster"
    address: str


class ReplicaReady(_Message):
    """``url`` is the engine's address, ``shm`` are the replica's files in /dev/shm."""

    kind: Literal["ready"] = "ready"
    url: str
    facts: ReplicaFacts
    shm: list[str]


class Failed(_Message):
    """A start that failed, or a replica that was lost.

    ``refused`` if the configuration is the reason, so a retry is useless; ``unplaced`` if no
    machine has room, so a later one may succeed.
    """

    kind: Literal["failed"] = "failed"
    reason: str
    refused: bool = False
    unplaced: bool = False


Event = Annotated[Phase | ClusterReady | ReplicaReady | Failed, Field(discriminator="kind")]
_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)


def read_event(line: bytes) -> Event:
    """Parse a child's line.

    Raises:
        ValueError: The line is not an event.
    """
    return _EVENTS.validate_json(line)


class EventWriter:
    """A child's channel to the service: its original standard output.

    Standard output is redirected to standard error, so that libraries cannot write to the channel.
    """

    def __init__(self) -> None:
        own = os.dup(1)
        os.dup2(2, 1)
        os.set_inheritable(own, False)
        self._out: TextIO = os.fdopen(own, "w", encoding="utf-8", buffering=1)
        sys.stdout = sys.stderr

    def send(self, message: Event) -> None:
        self._out.write(json.dumps(message.model_dump(mode="json")) + "\n")
        self._out.flush()
