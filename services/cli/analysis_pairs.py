"""The samples of two runs side by side."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from services.cli.analysis_runs import ComparedRun, Judged
from shared.analysis.paired import PairedDifference, paired_difference
from shared.analysis.statistics import mean
from shared.schemas import SampleId


@dataclass(frozen=True, slots=True)
class Pair:
    """A sample that both runs have a verdict for."""

    sample: SampleId
    first: Judged
    second: Judged


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many samples are in no pair, and why.

    ``only_first`` and ``only_second``: the other run does not have them. ``api_error``: both have
    them, and one at least has no verdict.
    """

    only_first: int
    only_second: int
    api_error: int

    @property
    def total(self) -> int:
        return self.only_first + self.only_second + self.api_error


@dataclass(frozen=True, slots=True)
class PairedSamples:
    """One data set of two runs."""

    dataset: str
    pairs: list[Pair]
    left_out: LeftOut

    @property
    def gained(self) -> list[Pair]:
        """Accepted in the second run alone."""
        return [pair for pair in self.pairs if pair.second.accepted and not pair.first.accepted]

    @property
    def lost(self) -> list[Pair]:
        """Accepted in the first run alone."""
        return [pair for pair in self.pairs if pair.first.accepted and not pair.second.accepted]

    def difference(self, value: Callable[[Judged], float]) -> PairedDifference:
        """Compare a value of the samples, which are averaged per problem."""
        return paired_difference(
            _problem_means(self.pairs, lambda pair: value(pair.first)),
            _problem_means(self.pairs, lambda pair: value(pair.second)),
        )


def accepted(judged: Judged) -> float:
    return float(judged.accepted)


def pass_ratio(judged: Judged) -> float:
    return judged.pass_ratio


def pair_up(dataset: str, first: ComparedRun, second: ComparedRun) -> PairedSamples:
    """Pair the samples of a data set by problem and index."""
    ours, theirs = first.verdicts[dataset], second.verdicts[dataset]
    both = sorted(ours.keys() & theirs.keys())
    pairs = list(_judged_pairs(both, ours, theirs))
    left_out = LeftOut(len(ours) - len(both), len(theirs) - len(both), len(both) - len(pairs))
    return PairedSamples(dataset, pairs, left_out)


def _judged_pairs(
    samples: list[SampleId], ours: Mapping[SampleId, Judged], theirs: Mapping[SampleId, Judged]
) -> Iterator[Pair]:
    for sample in samples:
        if ours[sample].judged and theirs[sample].judged:
            yield Pair(sample, ours[sample], theirs[sample])


def _problem_means(pairs: list[Pair], value: Callable[[Pair], float]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for pair in pairs:
        values.setdefault(pair.sample.problem_id, []).append(value(pair))
    return {problem: mean(each) or 0.0 for problem, each in values.items()}
