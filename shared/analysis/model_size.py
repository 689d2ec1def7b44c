"""Size of a run's model, and the figures that are typical of models of that size."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import JsonValue

from shared.run_record import RunRecord

# "7B", "6.7b", "350M", "8x7B"; not the active parameters of "30B-A3B", nor "4bit".
_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(?P<experts>\d{1,3})x)?(?P<number>\d{1,4}(?:\.\d{1,3})?) ?(?P<unit>[bm])"
    r"(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_REPORTED = "num_parameters"
_BILLION = 1e9
_BYTES_PER_PARAMETER = 2

TypicalMetric = Literal[
    "accepted_at_1", "pass_ratio_mean", "exec_success_rate", "syntax_error_rate", "timeout_rate"
]
METRICS: tuple[TypicalMetric, ...] = get_args(TypicalMetric)


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Billions of parameters, and where the number is from."""

    billions: float
    source: str

    def __str__(self) -> str:
        return f"{self.billions:.3g} B ({self.source})"


@dataclass(frozen=True, slots=True)
class TypicalRange:
    """Typical lowest and highest value of a metric (shares, 0 to 1), and the models it is from."""

    low: float
    high: float
    of: str

    def excludes(self, interval: Sequence[float]) -> bool:
        """Whether no value of an interval [low, high] is in the range."""
        return interval[1] < self.low or interval[0] > self.high


def model_size(record: RunRecord) -> ModelSize | None:
    """The size of a run's model; None if neither server nor name tells, or they name several.

    A server's ``num_parameters`` comes first, then the name of the model, then the size of its
    weight files at two bytes per parameter.
    """
    counts = {value for value in _numbers(record.generator, _REPORTED) if value > 0}
    if len(counts) == 1:
        return ModelSize(counts.pop() / _BILLION, "as the server reports")
    config = record.config
    names = (record.model, config.generation.model, config.actor_rollout_ref.model.path)
    for name in filter(None, names):
        if size := size_in_name(name):
            return size
    return _size_of_weights(record.generator)


def size_in_name(name: str) -> ModelSize | None:
    """The size that a model's name or path tells; None if it tells none, or several.

    The last part of a path that names a size decides.
    """
    for part in reversed(name.rstrip("/").split("/")):
        sizes = {_billions(found) for found in _SIZE.finditer(part.replace("_", "-"))} - {0.0}
        if len(sizes) > 1:
            return None
        if sizes:
            return ModelSize(sizes.pop(), f"by the name {part}")
    return None


def typical_range(size: ModelSize, dataset: str, metric: TypicalMetric) -> TypicalRange | None:
    """The typical range of a metric for models of a size; None if none is known."""
    if dataset in ("codecontests_valid", "codecontests_test"):
        low, high = _CODE_CONTESTS_SIZES
        return _CODE_CONTESTS[metric] if low <= size.billions < high else None
    if dataset == "humaneval" and metric == "accepted_at_1" and size.billions >= _SMALLEST:
        return next((found for below, found in _HUMANEVAL if size.billions < below), None)
    return None


# The ranges: docs/acceptance.md has the models and sources.

_CODE_CONTESTS_SIZES = (6.0, 9.0)
_SEVEN = "7B base models, greedy"
_CODE_CONTESTS: Mapping[TypicalMetric, TypicalRange] = {
    "accepted_at_1": TypicalRange(0.03, 0.10, _SEVEN),
    "pass_ratio_mean": TypicalRange(0.10, 0.25, _SEVEN),
    "exec_success_rate": TypicalRange(0.50, 0.80, _SEVEN),
    "syntax_error_rate": TypicalRange(0.05, 0.20, _SEVEN),
    "timeout_rate": TypicalRange(0.05, 0.15, _SEVEN),
}
_SMALLEST = 0.3
# By the size, in billions of parameters, below which a range holds.
_HUMANEVAL: tuple[tuple[float, TypicalRange], ...] = (
    (2.0, TypicalRange(0.10, 0.75, "models of 0.3 to 2 B")),
    (5.0, TypicalRange(0.15, 0.85, "models of 2 to 5 B")),
    (10.0, TypicalRange(0.25, 0.90, "models of 5 to 10 B")),
    (20.0, TypicalRange(0.30, 0.90, "models of 10 to 20 B")),
    (40.0, TypicalRange(0.50, 0.95, "models of 20 to 40 B")),
    (float("inf"), TypicalRange(0.55, 0.95, "models of 40 B and more")),
)


def _billions(found: re.Match[str]) -> float:
    number = float(found["number"]) * int(found["experts"] or 1)
    return number / 1000 if found["unit"].lower() == "m" else number


def _size_of_weights(generator: JsonValue) -> ModelSize | None:
    totals = {sum(_numbers(weights, None)) for weights in _values(generator, "weights")} - {0}
    if len(totals) != 1:
        return None
    size = totals.pop()
    source = f"about, from {size / _BILLION:.3g} GB of weights at two bytes each"
    return ModelSize(size / _BYTES_PER_PARAMETER / _BILLION, source)


def _numbers(document: JsonValue, key: str | None) -> Iterator[float]:
    """The numbers under a key anywhere in a document; of the document's own keys without one."""
    own = document.values() if isinstance(document, dict) else ()
    for value in _values(document, key) if key else own:
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value


def _values(document: JsonValue, key: str) -> Iterator[JsonValue]:
    if isinstance(document, dict):
        if key in document:
            yield document[key]
        for value in document.values():
            yield from _values(value, key)
