"""Results of canaries: the report on one round, and their sums in the run record."""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from shared.environment import SandboxEnvironment, different

_LISTED = 20


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CanaryFinding(_Part):
    """A canary that was not judged as it must be, or could not be judged, and why."""

    canary: str
    text: str


class CanaryReport(_Part):
    """One round: the canaries of a profile on one sandbox.

    Attributes:
        sandbox: URL of the sandbox.
        profile: Method, language and kind of tests, as ``CanaryProfile`` writes it.
        manifest: Hash of all canaries of the version that judged them.
        at: Unix time of the start.
        seconds: Duration of the round.
        judge_seconds: Seconds that the sandbox spent on it, summed over the programs.
        sent: Number of canaries.
        environment: What its programs run on; None if it did not tell.
        wrong: Those that were judged otherwise than they must be.
        unjudged: Those that the sandbox did not judge: it was away, or answered nothing usable.
        unable: Those that it cannot judge, for want of a compiler.
    """

    sandbox: str
    profile: str
    manifest: str
    at: float
    seconds: float
    judge_seconds: float = 0.0
    sent: int
    environment: SandboxEnvironment | None = None
    wrong: list[CanaryFinding] = Field(default_factory=list)
    unjudged: list[CanaryFinding] = Field(default_factory=list)
    unable: list[CanaryFinding] = Field(default_factory=list)

    @property
    def right(self) -> int:
        others = (*self.wrong, *self.unjudged, *self.unable)
        return self.sent - len({finding.canary for finding in others})


class SandboxCanaries(_Part):
    """All rounds on one sandbox; times as in ``CanaryReport``, each finding once.

    ``environments``: what its programs ran on, each different one once.
    """

    sandbox: str
    rounds: int
    sent: int
    right: int
    wrong: int
    unjudged: int
    unable: int
    first_at: float
    last_at: float
    seconds: float
    judge_seconds: float = 0.0
    environments: list[SandboxEnvironment] = Field(default_factory=list)
    findings: list[CanaryFinding] = Field(default_factory=list)
    notes: list[CanaryFinding] = Field(default_factory=list)

    @classmethod
    def of(cls, sandbox: str, reports: Sequence[CanaryReport]) -> "SandboxCanaries":
        others = [f for one in reports for f in (*one.unjudged, *one.unable)]
        return cls(
            sandbox=sandbox,
            rounds=len(reports),
            sent=sum(one.sent for one in reports),
            right=sum(one.right for one in reports),
            wrong=sum(_canaries(one.wrong) for one in reports),
            unjudged=sum(_canaries(one.unjudged) for one in reports),
            unable=sum(_canaries(one.unable) for one in reports),
            first_at=min(one.at for one in reports),
            last_at=max(one.at for one in reports),
            seconds=sum(one.seconds for one in reports),
            judge_seconds=sum(one.judge_seconds for one in reports),
            environments=different(one.environment for one in reports if one.environment),
            findings=_once(f for one in reports for f in one.wrong),
            notes=_once(others),
        )


class CanaryRecord(_Part):
    """Canaries of a run; ``lost`` rounds were sent and not judged before the run ended."""

    manifest: str = ""
    sandboxes: list[SandboxCanaries] = Field(default_factory=list)
    lost: int = 0

    @classmethod
    def of(cls, reports: Sequence[CanaryReport], lost: int = 0) -> "CanaryRecord":
        """Sum up the reports of a run, in any order."""
        ordered = sorted(reports, key=lambda one: one.at)
        by_sandbox: dict[str, list[CanaryReport]] = {}
        for one in ordered:
            by_sandbox.setdefault(one.sandbox, []).append(one)
        return cls(
            manifest=ordered[-1].manifest if ordered else "",
            sandboxes=[SandboxCanaries.of(url, found) for url, found in by_sandbox.items()],
            lost=lost,
        )

    @property
    def environments(self) -> list[SandboxEnvironment]:
        """What the programs ran on, in all sandboxes; each different one once."""
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


def _once(findings: Iterable[CanaryFinding]) -> list[CanaryFinding]:
    """The first finding of each text, at most ``_LISTED``."""
    return list({finding.text: finding for finding in findings}.values())[:_LISTED]
