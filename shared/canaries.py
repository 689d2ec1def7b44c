"""Results of canaries, programs with known verdicts that each sandbox of a run has to judge."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from shared.environment import SandboxEnvironment, different

_LISTED = 20


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CanaryFinding(_Part):
    """A canary that got another verdict than it must, or none, and why."""

    canary: str
    text: str


class CanaryReport(_Part):
    """One round: the canaries of a profile on one sandbox.

    Attributes:
        sandbox: URL of the sandbox.
        profile: Method, language and kind of tests.
        at: Unix time of the start.
        seconds: Duration of the round.
        sent: Number of canaries.
        environment: What the sandbox's programs run on; None if it did not answer that.
        wrong: Those with another verdict than they must have.
        unjudged: Those without a verdict: the sandbox was away, or its answer was unusable.
        unable: Those without a verdict, for want of a compiler.
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


class SandboxCanaries(_Part):
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
            findings=list(findings.values())[:_LISTED],
        )


class CanaryRecord(_Part):
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
        return different(found for one in self.sandboxes for found in one.environments)

    @property
    def distrust(self) -> list[str]:
        """One line per finding, with the sandbox; empty for a run whose verdicts can be trusted."""
        return [
            f"sandbox {one.sandbox}: {finding.text}"
            for one in self.sandboxes
            for finding in one.findings
        ]

    @property
    def trusted(self) -> bool:
        return not any(one.wrong for one in self.sandboxes)


def _canaries(findings: Sequence[CanaryFinding]) -> int:
    return len({finding.canary for finding in findings})
