"""What `plumb gate` asks of a run: a YAML file of rules."""

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.config_files import load_document, validate_document
from shared.errors import ConfigError

CostMetric = Literal[
    "avg_total_gen_tokens",
    "avg_gen_time",
    "avg_total_judge_time",
    "p95_total_judge_time",
    "cost_per_solved_tokens",
    "cost_per_solved_judge_time",
    "cost_per_solved_time",
    "total_spend_per_solved_tokens",
    "total_spend_per_solved_judge_time",
    "total_spend_per_solved_time",
]
ErrorRate = Literal[
    "syntax_error_rate",
    "runtime_error_rate",
    "timeout_rate",
    "wrong_answer_rate",
    "empty_output_rate",
]


class Confidence(StrEnum):
    """What has to keep the limit."""

    INTERVAL = "interval"
    """The whole interval at 95 %. Where only part of it does, the data cannot say."""
    POINT = "point"
    """The difference as it was found."""


class _Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DifferenceRule(_Rules):
    """second - first is to be at least this; shares, so that -0.01 is one percentage point."""

    min_difference: float = Field(ge=-1, le=1)
    confidence: Confidence = Confidence.INTERVAL


class IncreaseRule(_Rules):
    """second - first of an error rate is to be at most this."""

    max_increase: float = Field(ge=-1, le=1)
    confidence: Confidence = Confidence.INTERVAL


class CostRule(_Rules):
    """second / first is to be at most ``max_ratio``; the second itself at most ``max_value``."""

    max_ratio: float | None = Field(default=None, gt=0)
    max_value: float | None = Field(default=None, ge=0)


class DatasetRules(_Rules):
    """The rules for one data set; what is not given is not asked.

    ``min_coverage``: judged samples / samples, in both runs. ``min_problems``: problems in pairs.
    Below either the data cannot say. ``max_new_failures``: samples that the first run alone has
    accepted.
    """

    min_coverage: float = Field(default=1.0, ge=0, le=1)
    min_problems: int = Field(default=1, ge=1)
    max_new_failures: int | None = Field(default=None, ge=0)
    accepted_at_1: DifferenceRule | None = None
    pass_ratio_mean: DifferenceRule | None = None
    error_rates: dict[ErrorRate, IncreaseRule] = Field(default_factory=dict)
    costs: dict[CostMetric, CostRule] = Field(default_factory=dict)


class Policy(_Rules):
    """``default`` holds for every data set; ``datasets`` has rules that replace some of it."""

    default: DatasetRules = DatasetRules()
    datasets: dict[str, DatasetRules] = Field(default_factory=dict)

    def rules(self, dataset: str) -> DatasetRules:
        own = self.datasets.get(dataset)
        if own is None:
            return self.default
        given = {name: getattr(own, name) for name in own.model_fields_set}
        return self.default.model_copy(update=given)


def read_policy(path: Path) -> Policy:
    """Read and validate a policy.

    Raises:
        ConfigError: It cannot be read, a key or value is not valid, or nothing is asked.
    """
    document = load_document(path)
    try:
        policy = validate_document(Policy, document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if policy == Policy():
        raise ConfigError(f"{path}: no rules; ask for something under 'default' or 'datasets'")
    return policy
