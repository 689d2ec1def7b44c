"""What the router asks of whoever brings up engines."""

from collections.abc import Mapping
from typing import Protocol


class Replica(Protocol):
    """A running engine that speaks OpenAI's API, and what holds it."""

    @property
    def name(self) -> str:
        """Stands in the answers' ``X-Plumbline-Replica``, so printable ASCII."""
        ...

    @property
    def url(self) -> str:
        """``http://host:port``, without ``/v1``."""
        ...

    async def stop(self) -> None:
        """Free all that it holds, by force where need be; done before, or dead: nothing happens."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Facts for logs and ``/readyz``, as JSON has them."""
        ...


class ReplicaFactory(Protocol):
    async def start(self, rank: int, generation: int) -> Replica:
        """Bring up replica ``rank`` (0 and up), for the ``generation``-th time after the first.

        Several ranks start at the same time. What fails or is cancelled leaves nothing behind.

        Raises:
            PlumblineError: It cannot be started; the router tries again with the next generation.
        """
        ...
