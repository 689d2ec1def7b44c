"""Canaries and the environment of verdicts, as the judge finds them on each sandbox of a run.

Canaries are programs with known verdicts. With every round the judge asks for the environment that
the sandbox's programs run on. Interpreter and packages decide verdicts. The processor decides which
answers are in time.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from pydantic import Field

from shared.schemas import Part

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


class SandboxEnvironment(Part):
    """The interpreter and packages of a sandbox's programs.

    ``kind`` is the server: ``plumbline``, or ``SandboxFusion`` for any other. ``cpu`` is the model
    of the processor; empty if it is unknown.
    """

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
        changed = set(self.packages.items()) ^ set(other.packages.items())
        if names := sorted({name for name, _ in changed}):
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
        versions = [(name, self.packages.get(name)) for name in names[:_LISTED]]
        shown = [f"{name} {version}" if version else f"no {name}" for name, version in versions]
        return ", ".join([*shown, *(["…"] if len(names) > _LISTED else [])])


def different(environments: Iterable[SandboxEnvironment]) -> list[SandboxEnvironment]:
    """Return the first environment of each fingerprint and processor."""
    by_key = {(env.fingerprint, env.cpu): env for env in environments}
    return list(by_key.values())


_LISTED_FINDINGS = 20


class CanaryFinding(Part):
    """A canary that got another verdict than it must, or none, and why."""

    canary: str
    text: str


class CanaryReport(Part):
    """One round: the canaries of a profile (method, language, kind of tests) on one sandbox.

    ``at`` is the Unix time of the start, ``seconds`` the duration, ``sent`` the number of canaries.
    ``environment`` is None if the sandbox did not report it. ``wrong`` canaries got another verdict
    than they must have. The ``unjudged`` have no verdict, because the sandbox was away or its
    answer unusable; the ``unable`` have none for want of a compiler.
    """

    sandbox: str
    profile: str
    at: float
    seconds: float
    sent: int
    environment: SandboxEnvironment | None = None
    wrong: list[CanaryFinding] = Field(default_factory=list)
    unjudged: list[CanaryFinding] = Field(default_factory=list)
    unable: list[CanaryFinding] = Field(default_factory=list)

    @property
    def right(self) -> int:
        return self.sent - _canaries((*self.wrong, *self.unjudged, *self.unable))


def _canaries(findings: Sequence[CanaryFinding]) -> int:
    return len({finding.canary for finding in findings})


class SandboxCanaries(Part):
    """All rounds on one sandbox; each finding and each environment once."""

    sandbox: str
    sent: int
    right: int
    wrong: int
    unjudged: int
    unable: int
    environments: list[SandboxEnvironment] = Field(default_factory=list)
    findings: list[CanaryFinding] = Field(default_factory=list)

    @classmethod
    def of(cls, sandbox: str, reports: Sequence[CanaryReport]) -> "SandboxCanaries":
        findings = {finding.text: finding for report in reports for finding in report.wrong}
        return cls(
            sandbox=sandbox,
            sent=sum(report.sent for report in reports),
            right=sum(report.right for report in reports),
            wrong=sum(_canaries(report.wrong) for report in reports),
            unjudged=sum(_canaries(report.unjudged) for report in reports),
            unable=sum(_canaries(report.unable) for report in reports),
            environments=different(r.environment for r in reports if r.environment),
            findings=list(findings.values())[:_LISTED_FINDINGS],
        )


class CanaryRecord(Part):
    """Canaries of a run; ``lost`` rounds were begun and not finished before the run ended."""

    sandboxes: list[SandboxCanaries] = Field(default_factory=list)
    lost: int = 0

    @classmethod
    def of(cls, reports: Sequence[CanaryReport], lost: int = 0) -> "CanaryRecord":
        """Sum up the reports of a run, in any order."""
        by_sandbox: dict[str, list[CanaryReport]] = {}
        for report in sorted(reports, key=lambda report: report.at):
            by_sandbox.setdefault(report.sandbox, []).append(report)
        sandboxes = [SandboxCanaries.of(url, rounds) for url, rounds in by_sandbox.items()]
        return cls(sandboxes=sandboxes, lost=lost)

    @property
    def environments(self) -> list[SandboxEnvironment]:
        """What the programs of all sandboxes ran on; each different environment once."""
        return different(e for sandbox in self.sandboxes for e in sandbox.environments)

    @property
    def distrust(self) -> list[str]:
        """One line per finding, with the sandbox; empty for a run whose verdicts can be trusted."""
        return [
            f"sandbox {sandbox.sandbox}: {finding.text}"
            for sandbox in self.sandboxes
            for finding in sandbox.findings
        ]

    @property
    def trusted(self) -> bool:
        return not any(sandbox.wrong for sandbox in self.sandboxes)
