"""The formulas behind every published number: pure functions of the samples' results."""

from shared.metrics.samples import SampleResult
from shared.metrics.summary import MetricValue, summarize

__all__ = ["MetricValue", "SampleResult", "summarize"]
