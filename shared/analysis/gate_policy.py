"""Policy of the release gate: the rules of `plumb gate`, read from a YAML file."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shared.analysis.catalogue import METRICS, Group, keys
from shared.config_files import load_document, validate_document
from shared.errors import ConfigError

# Of a checkout; an image may have it, too.
_SHIPPED = Path(__file__).parents[2] / "configs" / "gate.yaml"


def _one_of(names: Sequence[str]) -> AfterValidator:
    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"is not one of {', '.join(names)}")
        return name

    return AfterValidator(known)


_COSTS = [
    metric.key
    for metric in METRICS
    if metric.group is Group.COST and metric.higher_is_better is False
]
CostMetric = Annotated[str, _one_of(_COSTS)]
ErrorRate = Annotated[str, _one_of(keys(Group.ERROR, planned=True))]


class Confidence(StrEnum):
    """The value that must be within the limit."""

    INTERVAL = "interval"
    """The whole 95 % interval; if only part of it is, the rule is undecided."""
    POINT = "point"
    """The observed difference."""


class _Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DifferenceRule(_Rules):
    """Lower limit of second - first, as a share: -0.01 is one percentage point."""

    min_difference: float = Field(ge=-1, le=1)
    confidence: Confidence = Confidence.INTERVAL


class IncreaseRule(_Rules):
    """Upper limit of second - first of an error rate."""

    max_increase: float = Field(ge=-1, le=1)
    confidence: Confidence = Confidence.INTERVAL


class CostRule(_Rules):
    """Upper limits: ``max_ratio`` of second / first, ``max_value`` of the second itself."""

    max_ratio: float | None = Field(default=None, gt=0)
    max_value: float | None = Field(default=None, ge=0)


class DatasetRules(_Rules):
    """The rules for one data set; a rule that is not set is not checked.

    ``min_coverage``: judged samples / samples, in both runs. ``min_problems``: problems in pairs.
    Below either, the gate is inconclusive. ``max_new_failures``: samples accepted only in the
    first run.
    """

    min_coverage: float = Field(default=1.0, ge=0, le=1)
    min_problems: int = Field(default=1, ge=1)
    max_new_failures: int | None = Field(default=None, ge=0)
    accepted_at_1: DifferenceRule | None = None
    pass_ratio_mean: DifferenceRule | None = None
    error_rates: dict[ErrorRate, IncreaseRule] = Field(default_factory=dict)
    costs: dict[CostMetric, CostRule] = Field(default_factory=dict)


class Policy(_Rules):
    """``default`` applies to every data set; ``datasets`` overrides single rules of it."""

    default: DatasetRules = DatasetRules()
    datasets: dict[str, DatasetRules] = Field(default_factory=dict)

    def rules(self, dataset: str) -> DatasetRules:
        own = self.datasets.get(dataset)
        if own is None:
            return self.default
        given = {name: getattr(own, name) for name in own.model_fields_set}
        return self.default.model_copy(update=given)


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy with the name of its file, for those who show a gate's verdict."""

    name: str
    policy: Policy


def read_policy(path: Path) -> Policy:
    """Read and validate a policy.

    Raises:
        ConfigError: The file cannot be read, a key or value is invalid, or there are no rules.
    """
    document = load_document(path)
    try:
        policy = validate_document(Policy, document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if policy == Policy():
        raise ConfigError(f"{path}: no rules; add some under 'default' or 'datasets'")
    return policy


def default_policy(path: Path | None = None) -> NamedPolicy | None:
    """Read a policy that may be left out; then it is the shipped one, where that is installed.

    Raises:
        ConfigError: As :func:`read_policy`.
    """
    if path is None and not _SHIPPED.exists():
        return None
    path = path or _SHIPPED
    return NamedPolicy(path.name, read_policy(path))
