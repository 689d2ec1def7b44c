"""Configuration of a run's derived results: QA logs and Weights & Biases."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field

from shared.protocol import Recorded, Section
from shared.statuses import FinalStatus

WandbMode = Literal["auto", "online", "offline", "disabled"]


class QaQuota(BaseModel, extra="forbid", frozen=True):
    """Number of samples of each status in a data set's QA log."""

    success: int = Field(default=0, ge=0)
    wrong_answer: int = Field(default=0, ge=0)
    syntax_error: int = Field(default=0, ge=0)
    runtime_error: int = Field(default=0, ge=0)
    timeout: int = Field(default=0, ge=0)

    @property
    def total(self) -> int:
        return sum(self.by_status.values())

    @property
    def by_status(self) -> dict[FinalStatus, int]:
        return {FinalStatus(name): number for name, number in self.model_dump().items()}

    @classmethod
    def of(cls, success: int, wrong: int, syntax: int, runtime: int, timeout: int) -> Self:
        return cls(
            success=success,
            wrong_answer=wrong,
            syntax_error=syntax,
            runtime_error=runtime,
            timeout=timeout,
        )


# Defaults by data set.
QUOTAS = {
    "codecontests_valid": QaQuota.of(10, 20, 10, 5, 5),
    "codecontests_test": QaQuota.of(6, 12, 6, 3, 3),
    "humaneval": QaQuota.of(4, 8, 4, 2, 2),
    "mbpp_reg": QaQuota.of(4, 8, 4, 2, 2),
    "default": QaQuota.of(4, 8, 4, 2, 2),
}


def _with_defaults(given: dict[str, QaQuota]) -> dict[str, QaQuota]:
    return QUOTAS | given


class QaLogsConfig(Section):
    """The QA logs."""

    quotas: Recorded[Annotated[dict[str, QaQuota], AfterValidator(_with_defaults)]] = QUOTAS
    """Samples per status by data set, ``default`` for the others (see results.md)."""

    def quota(self, dataset: str) -> QaQuota:
        return self.quotas.get(dataset) or self.quotas["default"]


class WandbConfig(Section):
    """Weights & Biases."""

    enabled: Recorded[bool] = False
    """Log the run to Weights & Biases."""
    project: Recorded[str] = Field(default="rlvr_coding_model", min_length=1)
    """W&B project."""
    name: Recorded[str | None] = None
    """Name of the W&B run; null for the name of the run."""
    mode: Recorded[WandbMode] = "auto"
    """``auto`` is ``online`` where ``WANDB_API_KEY`` is set, else ``offline``."""
    entity: Recorded[str | None] = None
    """W&B entity."""
    # Two attempts must fit into the 600 s for which a run waits to be published.
    timeout: Recorded[float] = Field(default=120, gt=0, le=240)
    """Seconds for writing or uploading."""
