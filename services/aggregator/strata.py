"""Choosing samples by status: pure functions, the same choice on every machine."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.schemas import SampleId, sha256
from shared.statuses import FinalStatus

Counts = dict[FinalStatus, int]
# Trouble of ours says nothing about a model.
_NEVER = FinalStatus.API_ERROR


@dataclass(frozen=True)
class Choice:
    """The chosen samples, by status and then by id.

    Attributes:
        samples: What was chosen.
        wanted: The quota.
        chosen: How many there are of each status.
        filled: How many of them stand in for a status that had too few.
    """

    samples: tuple[SampleId, ...]
    wanted: Counts
    chosen: Counts
    filled: Counts


def choose(
    statuses: Mapping[SampleId, FinalStatus], quota: Mapping[FinalStatus, int], seed: int
) -> Choice:
    """Choose samples at random, as many of each status as the quota says.

    Where a status has too few, the others (those without a quota too, but never ``api_error``) fill
    the gap in proportion to what they have left, by the method of largest remainders.

    Args:
        statuses: All samples of one data set.
        quota: How many are wanted of each status.
        seed: Decides which; the order of a status's samples is that of the SHA-256 of seed and key.
    """
    strata = _strata(statuses, seed)
    met = {status: min(quota.get(status, 0), len(strata[status])) for status in strata}
    spare = {status: len(strata[status]) - met[status] for status in strata}
    filled = apportion(sum(quota.values()) - sum(met.values()), spare)
    chosen = {status: met[status] + filled[status] for status in strata}
    samples = [s for status in strata for s in sorted(strata[status][: chosen[status]])]
    return Choice(tuple(samples), dict(quota), _there(chosen), _there(filled))


def apportion(number: int, available: Mapping[FinalStatus, int]) -> Counts:
    """Divide a number in proportion to what is available, by largest remainders.

    Nobody gives more than it has. Of equal remainders the first in the order of the statuses wins.
    """
    total = sum(available.values())
    if number >= total:
        return dict(available)
    shares = {status: divmod(number * there, total) for status, there in available.items()}
    counts = {status: whole for status, (whole, _) in shares.items()}
    by_remainder = sorted(shares, key=lambda status: -shares[status][1])
    for status in by_remainder[: number - sum(counts.values())]:
        counts[status] += 1
    return counts


def _strata(
    statuses: Mapping[SampleId, FinalStatus], seed: int
) -> dict[FinalStatus, list[SampleId]]:
    strata: dict[FinalStatus, list[SampleId]] = {s: [] for s in FinalStatus if s is not _NEVER}
    for sample, status in statuses.items():
        if status is not _NEVER:
            strata[status].append(sample)
    for samples in strata.values():
        samples.sort(key=lambda sample: sha256(f"{seed}\n{sample.key}"))
    return strata


def _there(counts: Counts) -> Counts:
    return {status: count for status, count in counts.items() if count}
