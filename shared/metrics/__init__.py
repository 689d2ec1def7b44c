"""The formulas behind every published number: pure functions of the samples' results."""

from shared.metrics.paired import PairedDifference, paired_difference
from shared.metrics.samples import SampleResult
from shared.metrics.slices import ProblemTraits, slice_summaries
from shared.metrics.summary import MetricValue, summarize

__all__ = [
    "MetricValue",
    "PairedDifference",
    "ProblemTraits",
    "SampleResult",
    "paired_difference",
    "slice_summaries",
    "summarize",
]
