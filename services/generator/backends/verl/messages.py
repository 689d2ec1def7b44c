"""What the service and its child processes tell each other: JSON, one object a line."""

import json
import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TextIO

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from shared.config import Config


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClusterOrder(_Message):
    """To the keeper of a Ray cluster.

    ``folder`` is for Ray's sockets and logs; ``gpus`` is None for those that the machine has.
    """

    folder: str
    gpus: int | None
    cpus: int
    needed: int


class HostOrder(_Message):
    """To the host of a replica; ``name`` tells it from others in Ray's lists."""

    config: Config
    rank: int
    generation: int
    name: str
    tag: str


class Cluster(_Message):
    """Where Ray is; ``waits`` is seconds that a placement may take to be had there."""

    address: str
    waits: float


class Phase(_Message):
    """A step of the start is done; ``seconds`` is what it took."""

    kind: Literal["phase"] = "phase"
    phase: str
    seconds: float


class ClusterReady(_Message):
    kind: Literal["cluster"] = "cluster"
    address: str


class ReplicaReady(_Message):
    """``url`` is the engine's address, ``facts`` goes to ``/info``, ``shm`` what is its own."""

    kind: Literal["ready"] = "ready"
    url: str
    facts: dict[str, Any]
    shm: list[str]


class Failed(_Message):
    """It will not work; ``refused`` says that the configuration is to blame."""

    kind: Literal["failed"] = "failed"
    reason: str
    refused: bool = False


Event = Annotated[Phase | ClusterReady | ReplicaReady | Failed, Field(discriminator="kind")]
_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)


def read_event(line: bytes) -> Event:
    """Parse a child's line.

    Raises:
        ValueError: It is none.
    """
    return _EVENTS.validate_json(line)


class Reports:
    """A child's way to say something: its standard output, which is then closed to all others.

    What libraries print goes to standard error.
    """

    def __init__(self) -> None:
        own = os.dup(1)
        os.dup2(2, 1)
        os.set_inheritable(own, False)
        self._out: TextIO = os.fdopen(own, "w", encoding="utf-8", buffering=1)
        sys.stdout = sys.stderr

    def send(self, message: BaseModel | Mapping[str, Any]) -> None:
        document = message if isinstance(message, Mapping) else message.model_dump(mode="json")
        self._out.write(json.dumps(document) + "\n")
        self._out.flush()
