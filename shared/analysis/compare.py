"""Comparison of two runs: paired samples, differences, gained and lost answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shared.analysis.bootstrap import Floats, Ints
from shared.analysis.differences import Mismatch, RunDifferences, run_differences
from shared.analysis.paired import PairedDifference, contest_clusters, paired_differences
from shared.analysis.runs import (
    STATUSES,
    ComparedRun,
    SampleVerdict,
    Value,
    accepted,
    pass_ratio,
    pass_ratio_high,
)
from shared.analysis.slices import SliceDifference, problem_buckets, slice_differences
from shared.analysis.statistics import share_over_problems
from shared.canaries import REJUDGE
from shared.errors import DataError
from shared.statuses import FinalStatus

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Pair:
    """A sample with a verdict in both runs."""

    problem_id: str
    sample_index: int
    first: SampleVerdict
    second: SampleVerdict


@dataclass(frozen=True, slots=True)
class Unpaired:
    """The number of samples in no pair.

    ``only_first`` and ``only_second``: missing from the other run. ``api_error``: in both runs,
    without a verdict in at least one. ``changed``: in both runs, of a problem whose prompt or tests
    are not the same.
    """

    only_first: int
    only_second: int
    api_error: int
    changed: int

    @property
    def total(self) -> int:
        return self.only_first + self.only_second + self.api_error + self.changed


@dataclass(frozen=True, slots=True)
class PassRatioBounds:
    """The difference of pass ratios if cases that were not run decide against, or for, a run.

    ``worst`` for the second run: its cases fail, and those of the first run pass. ``best``: the
    reverse. The difference of the exact pass ratios lies between them.
    """

    worst: PairedDifference
    best: PairedDifference


class DatasetComparison:
    """The samples of one data set in two runs, paired; differences are computed when read.

    If the runs' data differ, for example because one run has a part of the problems, only samples
    of problems whose recorded content is the same are paired.

    Attributes:
        dataset: Its name.
        runs: The two runs.
        verdicts: Theirs on the data set.
        rows: The rows of each pair in both runs' verdicts: two columns, by problem and index.
        left_out: What is in no pair.
        same_data: Whether both runs have the same problems.
        problem_ids: The problems of the pairs, sorted.
        problem: The place of each pair's problem in ``problem_ids``.
        flipped: Per pair: 1 if only the second run was accepted, -1 if only the first, else 0.
    """

    def __init__(self, dataset: str, first: ComparedRun, second: ComparedRun) -> None:
        self.dataset, self.runs = dataset, (first, second)
        self.verdicts = ours, theirs = first.verdicts[dataset], second.verdicts[dataset]
        rows = dict(zip(theirs.keys(), range(len(theirs)), strict=True))
        pairs = [(row, rows[key]) for row, key in enumerate(ours.keys()) if key in rows]
        same = both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        self.same_data = first.data_sha256(dataset) == second.data_sha256(dataset)
        if not self.same_data:
            digests = (
                [run.note(dataset, name).digest for run in self.runs] for name in ours.problem_ids
            )
            unchanged = np.array([bool(here) and here == there for here, there in digests], bool)
            same = both[unchanged[ours.problem[both[:, 0]]]]
        self.rows = same[ours.judged[same[:, 0]] & theirs.judged[same[:, 1]]]
        self.left_out = Unpaired(
            only_first=len(ours) - len(both),
            only_second=len(theirs) - len(both),
            api_error=len(same) - len(self.rows),
            changed=len(both) - len(same),
        )
        places, problem = np.unique(ours.problem[self.rows[:, 0]], return_inverse=True)
        self.problem_ids = [ours.problem_ids[place] for place in places]
        self.problem: Ints = np.asarray(problem, dtype=np.int64)
        before, after = self.columns(accepted)
        self.flipped: Ints = np.asarray(after - before, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def pair(self, place: int) -> Pair:
        first, second = (int(row) for row in self.rows[place])
        ours, theirs = self.verdicts
        problem_id, index = self.problem_ids[self.problem[place]], int(ours.sample_index[first])
        return Pair(problem_id, index, ours.verdict(first), theirs.verdict(second))

    @property
    def gained(self) -> list[Pair]:
        """Accepted only in the second run."""
        return [self.pair(int(place)) for place in np.flatnonzero(self.flipped > 0)]

    @property
    def lost(self) -> list[Pair]:
        """Accepted only in the first run."""
        return [self.pair(int(place)) for place in np.flatnonzero(self.flipped < 0)]

    @property
    def samples_cut(self) -> int:
        """The number of pairs with a verdict that left cases out (`judge.max_timeouts`)."""
        first, second = self.columns(lambda verdicts: verdicts.cases[:, 2] > 0)
        return int(np.count_nonzero(first + second))

    @property
    def statuses(self) -> dict[FinalStatus, dict[FinalStatus, int]]:
        """The number of pairs by the first run's status, then by the second's."""
        first, second = self.columns(lambda verdicts: verdicts.status)
        numbers = np.bincount((first * len(STATUSES) + second).astype(np.int64))
        counts: dict[FinalStatus, dict[FinalStatus, int]] = {}
        for place in np.flatnonzero(numbers):
            row, column = divmod(int(place), len(STATUSES))
            counts.setdefault(STATUSES[row], {})[STATUSES[column]] = int(numbers[place])
        return counts

    @cached_property
    def clusters(self) -> Ints | None:
        """The cluster of each of ``problem_ids``: see :mod:`shared.analysis.paired`."""
        return contest_clusters(self.problem_ids)

    def columns(self, value: Value) -> tuple[Floats, Floats]:
        """A value of the pairs in the first and in the second run."""
        first, second = (
            np.asarray(value(verdicts), dtype=float)[self.rows[:, side]]
            for side, verdicts in enumerate(self.verdicts)
        )
        return first, second

    def problem_means(self, values: Floats) -> Floats:
        """Average a value of the pairs over the samples of each problem."""
        problems = len(self.problem_ids)
        sums = np.bincount(self.problem, weights=values, minlength=problems)
        samples = np.bincount(self.problem, minlength=problems)
        return np.asarray(sums / np.maximum(samples, 1))

    def difference(self, value: Value) -> PairedDifference:
        """Compare a value of the samples, averaged per problem."""
        return self._compare([self.columns(value)])[0]

    def _compare(self, values: Sequence[tuple[Floats, Floats]]) -> list[PairedDifference]:
        means = [(self.problem_means(ours), self.problem_means(theirs)) for ours, theirs in values]
        return paired_differences(means, self.clusters)

    @property
    def accepted_at_1(self) -> PairedDifference:
        return self._differences[0]

    @property
    def pass_ratio_mean(self) -> PairedDifference:
        """Cases that were not run count as failed."""
        return self._differences[1]

    @property
    def pass_ratio_bounds(self) -> PassRatioBounds | None:
        """None if all cases were run, so that ``pass_ratio_mean`` is exact."""
        bounds = self._differences[2:]
        return PassRatioBounds(*bounds) if bounds else None

    @cached_property
    def _differences(self) -> list[PairedDifference]:
        low = self.columns(pass_ratio)
        values = [self.columns(accepted), low]
        if self.samples_cut:
            high = self.columns(pass_ratio_high)
            values += [(high[0], low[1]), (low[0], high[1])]
        return self._compare(values)

    @cached_property
    def buckets(self) -> dict[str, dict[str, Ints]]:
        """Places in ``problem_ids`` by dimension and bucket."""
        facts = []
        for name in self.problem_ids:  # a run may not know them
            first, second = (run.note(self.dataset, name).facts for run in self.runs)
            facts.append(second if first.prompt_length is None else first)
        return problem_buckets(facts)

    @cached_property
    def slices(self) -> dict[str, dict[str, SliceDifference]]:
        """Differences of accepted@1 by dimension and bucket."""
        first, second = map(self.problem_means, self.columns(accepted))
        return slice_differences(self.buckets, first, second, self.clusters)


@dataclass(frozen=True, slots=True)
class UnsharedDataset:
    """A data set of only one run; ``run`` is that run's letter."""

    run: str
    dataset: str


@dataclass(frozen=True)
class Comparison:
    """The second run against the first."""

    first: ComparedRun
    second: ComparedRun
    datasets: list[DatasetComparison]
    settings: RunDifferences

    @property
    def unshared(self) -> list[UnsharedDataset]:
        """The data sets of only one of the runs."""
        shared = {data.dataset for data in self.datasets}
        return [
            UnsharedDataset(run.label, name)
            for run in (self.first, self.second)
            for name in run.verdicts
            if name not in shared
        ]

    @property
    def warnings(self) -> list[str]:
        """One line per mismatch."""
        return self._described(self.settings.protocol)

    @property
    def remedy(self) -> str | None:
        """How runs become comparable that were judged otherwise; None for others."""
        return REJUDGE if any(mismatch.rejudge for mismatch in self.settings.protocol) else None

    @property
    def clustering(self) -> list[str]:
        """One line per data set with contests of several problems."""
        return [
            f"{data.dataset}: the intervals draw {difference.clusters} clusters of its "
            f"{difference.problems} problems: contests, and other problems alone"
            for data in self.datasets
            if (difference := data.accepted_at_1).clusters
        ]

    @property
    def doubts(self) -> list[str]:
        """One line per setting that is unknown."""
        return self._described(self.settings.unknown)

    @property
    def notes(self) -> list[str]:
        """One line per noted setting."""
        return self._described(self.settings.noted)

    def _described(self, mismatches: Sequence[Mismatch]) -> list[str]:
        return [mismatch.describe(self.first.label, self.second.label) for mismatch in mismatches]


@dataclass(frozen=True, slots=True)
class DatasetScore:
    """One run's accepted@1 over all its judged samples, with its 95 % interval."""

    samples: int
    accepted_at_1: float | None
    ci95: list[float] | None


def compare_runs(first: ComparedRun, second: ComparedRun) -> Comparison:
    """Compare two runs over the data sets that both have.

    Raises:
        DataError: The runs have no data set in common.
    """
    names = [name for name in first.verdicts if name in second.verdicts]
    if not names:
        ours, theirs = (", ".join(run.verdicts) or "none" for run in (first, second))
        raise DataError(
            f"{first.label} and {second.label} have no data set in common: {ours} in "
            f"{first.label}, {theirs} in {second.label}; compare runs over the same data"
        )
    datasets = [DatasetComparison(name, first, second) for name in names]
    # Where no problem is known to be the same, it is the whole data that differ.
    matched = [data.dataset for data in datasets if data.same_data or len(data)]
    settings = run_differences(first.record, second.record, names, matched)
    return Comparison(first, second, datasets, settings)


def require_same_protocol(comparison: Comparison) -> None:
    """Refuse to compare runs that differ in more than the model.

    Raises:
        DataError: The protocols differ; one line with each difference and both values.
    """
    if warnings := comparison.warnings:
        first, second = comparison.first, comparison.second
        hidden = len(warnings) - _SHOWN
        more = f"; and {hidden} more differences" if hidden > 0 else ""
        repeat = "repeat one of the runs with the other's settings"
        raise DataError(
            f"{first.place} ({first.label}) and {second.place} "
            f"({second.label}) cannot be compared: {'; '.join(warnings[:_SHOWN])}{more}; "
            f"{comparison.remedy or repeat} (plumb compare --force compares anyway)"
        )


def dataset_score(run: ComparedRun, dataset: str) -> DatasetScore:
    if (verdicts := run.verdicts.get(dataset)) is None:
        return DatasetScore(0, None, None)
    judged = verdicts.judged
    samples = int(judged.sum())
    problems = len(np.unique(verdicts.problem[judged]))
    accepted = int(verdicts.accepted[judged].sum())
    return DatasetScore(samples, *share_over_problems(accepted, samples, problems))


# The JSON document


@dataclass(frozen=True, slots=True)
class RunDocument:
    label: str
    folder: str
    name: str
    model: str | None
    notes: list[str]
    datasets: dict[str, DatasetScore]


@dataclass(frozen=True, slots=True)
class DatasetDocument:
    """``statuses`` counts pairs by the first run's status, then by the second's."""

    samples: int
    same_data: bool
    samples_cut: int
    left_out: Unpaired
    accepted_at_1: PairedDifference
    pass_ratio_mean: PairedDifference
    pass_ratio_bounds: PassRatioBounds | None
    statuses: dict[FinalStatus, dict[FinalStatus, int]]
    slices: dict[str, dict[str, SliceDifference]]
    samples_gained: int
    samples_lost: int
    gained: list[Pair]
    lost: list[Pair]


@dataclass(frozen=True, slots=True)
class PairDocument:
    first: str
    second: str
    mismatches: list[Mismatch]
    unknown: list[Mismatch]
    noted: list[Mismatch]
    unshared: list[UnsharedDataset]
    datasets: dict[str, DatasetDocument]


@dataclass(frozen=True, slots=True)
class ComparisonDocument:
    """Everything that was computed; the first run is the same in all comparisons."""

    runs: list[RunDocument]
    comparisons: list[PairDocument]


def comparison_document(
    comparisons: Sequence[Comparison], *, flips: bool = True
) -> ComparisonDocument:
    """``flips``: list the samples that are accepted in only one run, not only their numbers."""
    runs = [comparisons[0].first, *(comparison.second for comparison in comparisons)]
    return ComparisonDocument(
        runs=[
            RunDocument(
                label=run.label,
                folder=run.place,
                name=run.name,
                model=run.record.model,
                notes=run.notes,
                datasets={name: dataset_score(run, name) for name in run.verdicts},
            )
            for run in runs
        ],
        comparisons=[
            PairDocument(
                first=comparison.first.label,
                second=comparison.second.label,
                mismatches=comparison.settings.protocol,
                unknown=comparison.settings.unknown,
                noted=comparison.settings.noted,
                unshared=comparison.unshared,
                datasets={
                    data.dataset: _document(data, flips=flips) for data in comparison.datasets
                },
            )
            for comparison in comparisons
        ],
    )


def _document(data: DatasetComparison, *, flips: bool) -> DatasetDocument:
    return DatasetDocument(
        samples=len(data),
        same_data=data.same_data,
        samples_cut=data.samples_cut,
        left_out=data.left_out,
        accepted_at_1=data.accepted_at_1,
        pass_ratio_mean=data.pass_ratio_mean,
        pass_ratio_bounds=data.pass_ratio_bounds,
        statuses=data.statuses,
        slices=data.slices,
        samples_gained=int((data.flipped > 0).sum()),
        samples_lost=int((data.flipped < 0).sum()),
        gained=data.gained if flips else [],
        lost=data.lost if flips else [],
    )
