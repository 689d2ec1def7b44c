"""What a run's configuration says of the results that are derived from its samples."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field

from shared.protocol import Recorded, Section
from shared.statuses import FinalStatus

WandbMode = Literal["auto", "online", "offline", "disabled"]


class QaQuota(BaseModel, extra="forbid", frozen=True):
    """How many samples of each status a data set's QA log is to have."""

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


# The plan's.
QUOTAS = {
    "codecontests_valid": QaQuota.of(10, 20, 10, 5, 5),
    "codecontests_test": QaQuota.of(6, 12, 6, 3, 3),
    "humaneval": QaQuota.of(4, 8, 4, 2, 2),
    "mbpp_reg": QaQuota.of(4, 8, 4, 2, 2),
    "default": QaQuota.of(4, 8, 4, 2, 2),
}


def _with_the_plans(given: dict[str, QaQuota]) -> dict[str, QaQuota]:
    return QUOTAS | given


class QaLogsConfig(Section):
    """The QA logs.

    ``quotas``: by data set, ``default`` for those that are not named. A status that a quota does
    not name has 0 in it.

    Of a problem's tests a record holds at most ``max_tests``, each text of them and of the first
    failed case shortened to ``max_chars`` characters.
    """

    quotas: Recorded[Annotated[dict[str, QaQuota], AfterValidator(_with_the_plans)]] = QUOTAS
    max_tests: Recorded[int] = Field(default=3, ge=0)
    max_chars: Recorded[int] = Field(default=2000, ge=100)

    def quota(self, dataset: str) -> QaQuota:
        return self.quotas.get(dataset) or self.quotas["default"]


class WandbConfig(Section):
    """Weights & Biases. ``timeout``: seconds that writing or uploading the results may take.

    ``name``: the W&B run's; None for ``run.name``. ``mode``: ``auto`` is ``online`` where
    WANDB_API_KEY is set, else ``offline``, files to be uploaded later.
    """

    enabled: Recorded[bool] = False
    project: Recorded[str] = Field(default="rlvr_coding_model", min_length=1)
    name: Recorded[str | None] = None
    mode: Recorded[WandbMode] = "auto"
    entity: Recorded[str | None] = None
    # Two attempts, of the 600 s for which a run waits to be published.
    timeout: Recorded[float] = Field(default=120, gt=0, le=240)
