"""How good the answers are: shares (0 to 1) of judged samples, and pass ratios."""

import math
from collections.abc import Sequence

from shared.metrics.samples import SampleResult
from shared.metrics.statistics import mean, percentile, ratio
from shared.statuses import FinalStatus

ERROR_STATUSES = (
    FinalStatus.SYNTAX_ERROR,
    FinalStatus.RUNTIME_ERROR,
    FinalStatus.TIMEOUT,
    FinalStatus.WRONG_ANSWER,
    FinalStatus.EMPTY_OUTPUT,
)


def accepted_at_1(judged: Sequence[SampleResult]) -> float | None:
    """Accepted samples (pass ratio 1.0) / samples (the plan's formula)."""
    return ratio(sum(sample.accepted for sample in judged), len(judged))


def pass_ratio_mean(judged: Sequence[SampleResult]) -> float | None:
    """Mean over samples of (cases passed / cases)."""
    return mean([sample.pass_ratio for sample in judged])


def pass_ratios_of(samples: Sequence[SampleResult]) -> tuple[float, int]:
    """One problem's part of the mean: the sum of its pass ratios, and of how many it is."""
    return math.fsum(sample.pass_ratio for sample in samples), len(samples)


def pass_ratio_percentile(judged: Sequence[SampleResult], percent: float) -> float | None:
    """Percentile over samples of (cases passed / cases), interpolated linearly."""
    return percentile([sample.pass_ratio for sample in judged], percent)


def exec_success_rate(judged: Sequence[SampleResult]) -> float | None:
    """(success + wrong_answer) / samples: programs that ran to their end (the plan's formula)."""
    return ratio(sum(sample.final_status.executed for sample in judged), len(judged))


def status_rate(judged: Sequence[SampleResult], status: FinalStatus) -> float | None:
    """Samples of this final status / samples."""
    return ratio(sum(sample.final_status is status for sample in judged), len(judged))
