"""Query and answers of the API's comparisons."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from shared.analysis.compare import ComparisonDocument, FlipDocument
from shared.statuses import FinalStatus

FlipKind = Literal["flips", "gained", "lost", "changed", "all"]
_Runs = Annotated[str, Field(min_length=1, max_length=20_000)]


class ComparisonAnswer(RootModel[ComparisonDocument]):
    """What `plumb compare --json` writes, without the lists of flips: `gained` and `lost` are
    empty, their numbers are `samples_gained` and `samples_lost`. `folder` is the run's id."""


class FlipPage(BaseModel):
    """Pairs of samples, by problem and index; ``next`` is the offset of the following page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    total: Annotated[int, Field(ge=0)]
    flips: list[FlipDocument]
    next: int | None


class CompareQuery(BaseModel):
    """Runs to compare: ids, separated by commas; the first is the baseline.

    An id with a comma or a percent sign is percent-encoded within the list.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: _Runs


class _PageQuery(CompareQuery):
    """Runs, a data set, and a position in a list."""

    dataset: str = Field(min_length=1, max_length=500)
    offset: int = Field(default=0, ge=0, lt=2**31)
    limit: int = Field(default=50, ge=1, le=200)


class GridQuery(_PageQuery):
    """Runs, a data set, and which of its problems: first those on which the runs disagree most, or
    the hardest ones, which no run solves."""

    first: Literal["disagreement", "hardest"] = "disagreement"


class FlipsQuery(_PageQuery):
    """Which pairs of two runs: ``flips`` are accepted in one of them, ``gained`` in the second,
    ``lost`` in the first, ``changed`` have different statuses.

    ``first`` and ``second`` are statuses in the two runs, ``q`` matches parts of the problem id,
    ``dimension`` and ``bucket`` name a slice.
    """

    kind: FlipKind = "flips"
    first: FinalStatus | None = None
    second: FinalStatus | None = None
    q: str | None = Field(default=None, max_length=200)
    dimension: str | None = Field(default=None, max_length=50)
    bucket: str | None = Field(default=None, max_length=500)
