"""Environment of verdicts: what a sandbox's programs run on, as one of them finds it.

The judge asks each sandbox of a run with every round of canaries. Interpreter and packages decide
verdicts. The processor decides which answers are in time.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict

PACKAGES = """\
import json
import platform
from importlib.metadata import distributions
found = {
    "python": platform.python_version(),
    "packages": {str(one.metadata["Name"]): str(one.version) for one in distributions()},
}
"""
"""Program that finds interpreter and packages."""
PROGRAM = f"""\
{PACKAGES}
import re

try:
    with open("/proc/cpuinfo") as file:
        model = re.search("^model name.*?: *(.*)", file.read(), re.MULTILINE)
except OSError:
    model = None
found["cpu"] = model.group(1) if model else platform.machine()
print(json.dumps(found))
"""
"""Program that prints the whole environment as JSON, without the kind."""
REJUDGE = "plumb rejudge RUN judges a run's completions again, by the present rules and packages"
"""The remedy for runs that were judged otherwise."""
_LISTED = 5


class SandboxEnvironment(BaseModel):
    """What the programs of a sandbox run on.

    Attributes:
        kind: The server: ``plumbline``, or ``SandboxFusion`` for any other.
        python: Version of the programs' interpreter.
        packages: Versions of the packages that they can import.
        cpu: Model of the processor; empty if it is unknown.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    python: str
    packages: dict[str, str]
    cpu: str = ""

    @classmethod
    def read(cls, kind: str, stdout: bytes) -> Self | None:
        """Parse the output of the program; None if it is something else."""
        try:
            return cls.model_validate({"kind": kind, **json.loads(stdout)})
        except (ValueError, TypeError):
            return None

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 over what decides verdicts: kind, interpreter and packages."""
        content = [self.kind, self._minor, sorted(self.packages.items())]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def _minor(self) -> str:
        """The interpreter's version without the patch level, which fixes errors alone."""
        return ".".join(self.python.split(".")[:2])

    def deciding(self, other: Self) -> Iterator[tuple[str, str, str]]:
        """Yield what differs and decides verdicts: name, here, there."""
        if self.kind != other.kind:
            yield "the kind of the sandbox", self.kind, other.kind
        if self._minor != other._minor:
            yield "the programs' Python", self.python, other.python
        names = sorted(
            name
            for name in {*self.packages, *other.packages}
            if self.packages.get(name) != other.packages.get(name)
        )
        if names:
            yield "what programs can import", self._versions(names), other._versions(names)

    def timing(self, other: Self) -> Iterator[tuple[str, str, str]]:
        """Yield what differs and decides which answers are in time: name, here, there."""
        if self.cpu and other.cpu and self.cpu != other.cpu:
            yield "the sandbox's processor", self.cpu, other.cpu

    def describe(self) -> str:
        """Interpreter, number of packages, and processor in a line."""
        processor = f", {self.cpu}" if self.cpu else ""
        return f"Python {self.python}, packages: {len(self.packages)}{processor}"

    def _versions(self, names: list[str]) -> str:
        shown = [
            f"{name} {self.packages[name]}" if name in self.packages else f"no {name}"
            for name in names[:_LISTED]
        ]
        return ", ".join([*shown, *(["…"] if len(names) > _LISTED else [])])


def different(environments: Iterable[SandboxEnvironment]) -> list[SandboxEnvironment]:
    """The first one of each fingerprint and processor."""
    return list({(one.fingerprint, one.cpu): one for one in environments}.values())
