"""Metrics of a data set: accepted@1, pass@k, pass ratio, error rates, cost per solved, coverage."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Self

from shared.analysis.bootstrap import ClusteredMean, bootstrap_intervals
from shared.analysis.statistics import (
    MetricValue,
    corrected_share,
    mean,
    pass_at_k,
    percentile,
    ratio,
    sample_sizes,
    share_over_problems,
)
from shared.certificates import CertifiedTests
from shared.schemas import Generation, Verdict
from shared.statuses import FinalStatus, VerdictDetail

ERROR_STATUSES = (
    FinalStatus.SYNTAX_ERROR,
    FinalStatus.RUNTIME_ERROR,
    FinalStatus.TIMEOUT,
    FinalStatus.WRONG_ANSWER,
    FinalStatus.EMPTY_OUTPUT,
)


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One sample of one data set. Times are in seconds; None means unknown.

    ``not_run_ratio`` is (cases not run / cases): the exact pass ratio is between ``pass_ratio`` and
    their sum. ``work`` is the Unix time of the request and of the verdict.
    """

    problem_id: str
    sample_index: int
    final_status: FinalStatus
    accepted: bool
    pass_ratio: float
    output_tokens: int | None
    gen_time: float | None
    total_judge_time: float
    not_run_ratio: float = 0.0
    missing_module: bool = False
    truncated: bool = False
    work: tuple[float, float] | None = None

    @property
    def cut(self) -> bool:
        """Whether cases were not run (`judge.max_timeouts`): the pass ratio is a lower bound."""
        return self.not_run_ratio > 0

    @property
    def judged(self) -> bool:
        """Whether the status describes the answer rather than an infrastructure failure."""
        return self.final_status is not FinalStatus.API_ERROR

    @property
    def total_time(self) -> float | None:
        """Seconds of generation and judging together."""
        return None if self.gen_time is None else self.gen_time + self.total_judge_time

    @classmethod
    def of(cls, verdict: Verdict, generation: Generation) -> Self:
        return cls(
            problem_id=verdict.problem_id,
            sample_index=verdict.sample_index,
            final_status=verdict.final_status,
            accepted=verdict.accepted,
            pass_ratio=verdict.pass_ratio,
            output_tokens=generation.output_tokens,
            gen_time=generation.gen_time,
            total_judge_time=verdict.total_judge_time,
            not_run_ratio=verdict.not_run_ratio,
            truncated=generation.finish_reason == "length",
            missing_module=verdict.detail is VerdictDetail.MISSING_MODULE,
            work=_work(verdict, generation),
        )


def _work(verdict: Verdict, generation: Generation) -> tuple[float, float] | None:
    ended = verdict.judged_at
    if ended is None:
        return None
    if generation.finished_at is None:  # recorded: only its judging belongs to this run
        return ended - verdict.total_judge_time, ended
    return generation.finished_at - (generation.gen_time or 0.0), ended


Samples = Sequence[SampleResult]
Quantity = Callable[[SampleResult], float | None]

_COSTS: dict[str, Quantity] = {
    "tokens": lambda sample: sample.output_tokens,
    "judge_time": lambda sample: sample.total_judge_time,
    "time": lambda sample: sample.total_time,
}
_AVERAGES: dict[str, Quantity] = {
    "avg_total_gen_tokens": lambda sample: sample.output_tokens,
    "avg_gen_time": lambda sample: sample.gen_time,
    "avg_total_judge_time": lambda sample: sample.total_judge_time,
}


def summarize(
    results: Samples, run_seconds: float | None, many_answers: Collection[str] = ()
) -> dict[str, MetricValue]:
    """Compute every metric of one data set; ``shared.analysis.catalogue`` has the formulas.

    An undefined metric (no samples, none solved, tokens unknown) is None, never NaN. The pass
    ratios of ``samples_cut``, and so all metrics of them, are lower bounds.

    ``<rate>_ci95`` is a Wilson interval whose n is the number of problems, not of samples: samples
    of one problem are not independent. A mean of values between 0 and 1 over problems varies no
    more than a share does, so the interval is never too narrow for several samples per problem.
    ``<mean>_ci95``, pass@k included, is a bootstrap over problems.

    Args:
        results: The samples of one data set; at most one result per sample.
        run_seconds: Seconds in which the run was at work.
        many_answers: Ids of the problems that have several right outputs but no checker.
    """
    judged = judged_only(results)
    accepted = [sample for sample in judged if sample.accepted]
    problems = clusters(judged)
    seconds = _work_seconds(judged, run_seconds)
    planned = by_problem(results)
    most_samples = max(map(len, planned.values()), default=0)
    # With one sample per problem pass@1 is accepted_at_1.
    ks = sample_sizes(most_samples) if most_samples > 1 else []
    means = {
        **{f"pass_at_{k}": _mean_pass_at_k(problems, k) for k in ks},
        **{name: _mean_total(problems, quantity) for name, quantity in _AVERAGES.items()},
    }
    metrics: dict[str, MetricValue] = {
        "total_problems": len(planned),
        "total_samples": len(results),
        **share_of("accepted_at_1", judged),
        **share_of("exec_success_rate", judged, lambda sample: sample.final_status.executed),
        **{
            name: value
            for status in ERROR_STATUSES
            for name, value in share_of(f"{status}_rate", judged, partial(_has, status)).items()
        },
        **share_of(
            "accepted_at_1_single_answer",
            [sample for sample in judged if sample.problem_id not in many_answers],
        ),
        **share_of(
            "accepted_at_1_untruncated", [sample for sample in judged if not sample.truncated]
        ),
        "truncated": sum(sample.truncated for sample in judged),
        "many_answers_problems": len(planned.keys() & set(many_answers)),
        **pass_ratio_means(judged),
        "pass_ratio_p50": percentile([sample.pass_ratio for sample in judged], 50),
        "pass_ratio_p90": percentile([sample.pass_ratio for sample in judged], 90),
        **{name: average.value for name, average in means.items()},
        "p95_total_judge_time": percentile(means["avg_total_judge_time"].totals, 95),
        "throughput": _per_second(len(problems), seconds),
        "work_seconds": seconds,
        **{f"cost_per_solved_{name}": _per_solved(accepted, q) for name, q in _COSTS.items()},
        **{f"total_spend_per_solved_{name}": _per_solved(judged, q) for name, q in _COSTS.items()},
        "coverage": ratio(len(judged), len(results)),
        "accepted_at_1_bounds": _accepted_bounds(results),
        "api_errors": len(results) - len(judged),
        "missing_modules": sum(sample.missing_module for sample in judged),
    }
    ratios = [math.fsum(sample.pass_ratio for sample in samples) for samples in problems]
    means["pass_ratio_mean"] = ClusteredMean(ratios, list(map(len, problems)), bounded=True)
    values = [value for name in means if not isinstance(value := metrics[name], list)]
    intervals = bootstrap_intervals(list(means.values()), values)
    return metrics | {f"{name}_ci95": ends for name, ends in zip(means, intervals, strict=True)}


def certified_metrics(results: Samples, tests: CertifiedTests | None) -> dict[str, MetricValue]:
    """accepted@1 corrected by a certificate of the tests, and what it says of them.

    Without a certificate there is none of them; without usable rates the score is None.
    """
    if tests is None:
        return {}
    judged = judged_only(results)
    share = ratio(sum(sample.accepted for sample in judged), len(judged))
    corrected = None
    if share is not None and (rates := tests.usable):
        corrected = corrected_share(share, len(by_problem(judged)), rates)
    return {
        "accepted_at_1_corrected": corrected.value if corrected else None,
        "accepted_at_1_corrected_ci95": corrected.ci95 if corrected else None,
        "certified_problems": tests.problems,
        "wrong_rejected_rate": tests.rates.negative.rate if tests.rates else None,
        "right_accepted_rate": tests.rates.positive.rate if tests.rates else None,
    }


# Samples by problem


def judged_only(results: Iterable[SampleResult]) -> list[SampleResult]:
    return [result for result in results if result.judged]


def by_problem(results: Iterable[SampleResult]) -> dict[str, list[SampleResult]]:
    groups: defaultdict[str, list[SampleResult]] = defaultdict(list)
    for result in results:
        groups[result.problem_id].append(result)
    return dict(groups)


def clusters(results: Iterable[SampleResult]) -> list[list[SampleResult]]:
    """The samples of each problem, sorted by problem id whatever the order of the samples."""
    return [samples for _, samples in sorted(by_problem(results).items())]


# Quality: shares (0 to 1) of judged samples, and pass ratios


def share_of(
    name: str, samples: Samples, has: Callable[[SampleResult], bool] = attrgetter("accepted")
) -> dict[str, MetricValue]:
    """The share of samples that have something, with its 95 % interval over problems."""
    problems = len(by_problem(samples))
    share, interval = share_over_problems(sum(map(has, samples)), len(samples), problems)
    return {name: share, f"{name}_ci95": interval}


def pass_ratio_means(judged: Samples) -> dict[str, MetricValue]:
    """Mean pass ratio, its bounds if cases not run fail or pass, and the number of samples cut."""
    low = mean([sample.pass_ratio for sample in judged])  # cases passed / cases
    left = mean([sample.not_run_ratio for sample in judged])
    bounds = None if low is None or left is None else [low, min(1.0, low + left)]
    return {
        "pass_ratio_mean": low,
        "pass_ratio_mean_bounds": bounds,
        "samples_cut": sum(sample.cut for sample in judged),
    }


def _has(status: FinalStatus, sample: SampleResult) -> bool:
    return sample.final_status is status


def _mean_pass_at_k(problems: Sequence[Samples], k: int) -> ClusteredMean:
    """Mean of pass@k over the problems with at least k judged samples."""
    enough = [len(samples) >= k for samples in problems]
    estimates = [
        pass_at_k(len(samples), sum(sample.accepted for sample in samples), k) if defined else 0.0
        for samples, defined in zip(problems, enough, strict=True)
    ]
    return ClusteredMean(estimates, list(map(int, enough)), bounded=True)


# Cost: averages are over the problems for which the quantity is known, a problem's samples summed


def _mean_total(problems: Iterable[Samples], quantity: Quantity) -> ClusteredMean:
    """Mean over problems of the sum of a quantity over each problem's samples."""
    totals = [
        [value for sample in samples if (value := quantity(sample)) is not None]
        for samples in problems
    ]
    return ClusteredMean(list(map(math.fsum, totals)), [int(bool(values)) for values in totals])


def _per_solved(samples: Samples, quantity: Quantity) -> float | None:
    """Sum of the quantity over the samples / number accepted; None if a value is unknown."""
    values = [value for sample in samples if (value := quantity(sample)) is not None]
    if len(values) < len(samples):
        return None
    return ratio(math.fsum(values), sum(sample.accepted for sample in samples))


def run_throughput(results: Iterable[Samples], run_seconds: float) -> float | None:
    """Judged problems of all data sets / seconds in which the run was at work."""
    return _per_second(sum(len(by_problem(judged_only(result))) for result in results), run_seconds)


def _per_second(problems: int, seconds: float | None) -> float | None:
    """Problems / seconds; None below a microsecond."""
    return ratio(problems, seconds) if seconds and seconds > 1e-6 else None


def _work_seconds(judged: Samples, run_seconds: float | None) -> float | None:
    """Seconds in which at least one sample was between its request and its verdict.

    At most those of the run: a sample may have waited while no command was at work.
    """
    if not judged:
        return None
    total, until = 0.0, -math.inf
    for begun, ended in sorted(sample.work for sample in judged if sample.work is not None):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    if until == -math.inf:
        return run_seconds
    return total if run_seconds is None else min(total, run_seconds)


# Completeness


def _accepted_bounds(results: Samples) -> list[float] | None:
    """accepted_at_1 if all samples without a verdict failed, and if all of them passed."""
    if not results:
        return None
    judged = judged_only(results)
    accepted = sum(sample.accepted for sample in judged)
    unjudged = len(results) - len(judged)
    return [accepted / len(results), (accepted + unjudged) / len(results)]
