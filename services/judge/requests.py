"""Calls of SandboxFusion with their limits; ``fusion`` makes requests of them."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.schemas import InfraFailure

if TYPE_CHECKING:  # loading it takes long, and most calls do not need it
    from sandbox_fusion import RunCodeResponse

# Cases of one submit that SandboxFusion runs at once (its dataset.max_runner_concurrency).
_SUBMIT_CONCURRENCY = 3


def fetched(response: "RunCodeResponse", name: str) -> bytes:
    """Return a fetched file; empty if it is missing."""
    try:
        return base64.b64decode(response.files.get(name, ""))
    except ValueError:
        return b""


@dataclass(frozen=True, slots=True)
class RunCode:
    """Call that runs a program; memory in MiB."""

    code: str
    language: str
    stdin: str | None
    compile_timeout: float
    run_timeout: float
    memory_limit_mb: int
    files: Mapping[str, str] = field(default_factory=dict)
    fetch_files: Sequence[str] = ()

    @property
    def longest(self) -> float:
        """Longest execution time by the request's own limits."""
        return self.compile_timeout + self.run_timeout


@dataclass(frozen=True, slots=True)
class Submit:
    """Call of the data-set API; ``timeout`` applies to compiling and to running each case.

    ``id`` is that of the record in the server's data set, if none comes with ``config``.
    """

    dataset: str
    id: int | str
    completion: str
    config: Mapping[str, Any]
    cases: int
    timeout: float

    @property
    def longest(self) -> float:
        """Longest execution time of all cases by their own limits."""
        rounds = -(-self.cases // _SUBMIT_CONCURRENCY)
        return 2 * self.timeout * rounds


@dataclass
class Attempts:
    """Requests made for one sample, and the failed ones among them."""

    requests: int = 0
    failures: list[InfraFailure] = field(default_factory=list)
