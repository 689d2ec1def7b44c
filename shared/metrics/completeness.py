"""What an incomplete run still says: how much was judged, and what the rest could change."""

from collections.abc import Sequence

from shared.metrics.samples import SampleResult, judged_only
from shared.metrics.statistics import ratio


def api_errors(results: Sequence[SampleResult]) -> int:
    """Samples without a verdict, through trouble of ours."""
    return len(results) - len(judged_only(results))


def coverage(results: Sequence[SampleResult]) -> float | None:
    """Judged samples / samples."""
    return ratio(len(judged_only(results)), len(results))


def accepted_bounds(results: Sequence[SampleResult]) -> list[float] | None:
    """accepted_at_1 if every sample without a verdict failed, and if every one passed."""
    if not results:
        return None
    accepted = sum(sample.accepted for sample in judged_only(results))
    return [accepted / len(results), (accepted + api_errors(results)) / len(results)]
