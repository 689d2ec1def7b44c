"""Metrics as single numbers, for those who know no others."""

from collections.abc import Mapping

from shared.metrics.summary import MetricValue


def flat_metrics(metrics: Mapping[str, MetricValue]) -> dict[str, float]:
    """Give an interval's ends names of their own, ``<metric>_low`` and ``<metric>_high``.

    What is not defined (None) is left out: there is no number for it.
    """
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, list):
            low, high = value
            flat |= {f"{name}_low": low, f"{name}_high": high}
        elif value is not None:
            flat[name] = value
    return flat
