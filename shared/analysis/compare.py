"""Comparison of two runs: paired samples, differences, gained and lost answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.analysis.differences import Mismatch, run_differences
from shared.analysis.paired import PairedDifference, paired_difference
from shared.analysis.runs import ComparedRun, SampleVerdict, common_datasets
from shared.analysis.statistics import mean, ratio, wilson_interval
from shared.errors import DataError
from shared.final_sets import FinalSetUse
from shared.schemas import SampleId
from shared.statuses import JudgeMethod

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Pair:
    """A sample with a verdict in both runs."""

    sample: SampleId
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
class PairedSamples:
    """The samples of one data set in two runs, paired.

    ``same_data``: both runs have the same problems. Otherwise only problems with the same content
    are paired.
    """

    dataset: str
    pairs: list[Pair]
    unpaired: Unpaired
    same_data: bool

    @property
    def gained(self) -> list[Pair]:
        """Accepted only in the second run."""
        return [pair for pair in self.pairs if pair.second.accepted and not pair.first.accepted]

    @property
    def lost(self) -> list[Pair]:
        """Accepted only in the first run."""
        return [pair for pair in self.pairs if pair.first.accepted and not pair.second.accepted]

    @property
    def cut(self) -> int:
        """The number of pairs with a verdict that left cases out (`judge.max_timeouts`)."""
        return sum(bool(one.first.cases_not_run or one.second.cases_not_run) for one in self.pairs)

    def difference(
        self,
        value: Callable[[SampleVerdict], float],
        second: Callable[[SampleVerdict], float] | None = None,
    ) -> PairedDifference:
        """Compare a value of the samples, averaged per problem; ``second`` is the other run's."""
        return paired_difference(
            _problem_means(self.pairs, lambda pair: value(pair.first)),
            _problem_means(self.pairs, lambda pair: (second or value)(pair.second)),
        )


@dataclass(frozen=True, slots=True)
class PassRatioBounds:
    """The difference of pass ratios if cases that were not run decide against, or for, a run.

    ``worst`` for the second run: its cases fail, and those of the first run pass. ``best``: the
    reverse. The difference of the exact pass ratios lies between them.
    """

    worst: PairedDifference
    best: PairedDifference


@dataclass(frozen=True)
class DatasetComparison:
    """One data set of two runs.

    ``pass_ratio_mean`` counts cases that were not run as failed. ``pass_ratio_bounds`` is None if
    there are none, so that it is exact.
    """

    paired: PairedSamples
    accepted_at_1: PairedDifference
    pass_ratio_mean: PairedDifference
    pass_ratio_bounds: PassRatioBounds | None


@dataclass(frozen=True, slots=True)
class UnsharedDataset:
    """A data set of only one run; ``run`` is that run's letter."""

    run: str
    dataset: str


@dataclass(frozen=True)
class Comparison:
    """The second run against the first.

    ``mismatches``: differences in protocol, with which the runs are not comparable. ``unknown``:
    what one of the runs did not record, so that it may differ. ``noted``: settings that a
    comparison may vary.
    """

    first: ComparedRun
    second: ComparedRun
    datasets: list[DatasetComparison]
    mismatches: list[Mismatch]
    unknown: list[Mismatch]
    noted: list[Mismatch]
    unshared: list[UnsharedDataset]

    @property
    def warnings(self) -> list[str]:
        """One line per mismatch."""
        return self._described(self.mismatches)

    @property
    def doubts(self) -> list[str]:
        """One line per setting that is unknown."""
        return self._described(self.unknown)

    @property
    def notes(self) -> list[str]:
        """One line per noted setting."""
        return self._described(self.noted)

    def _described(self, found: Sequence[Mismatch]) -> list[str]:
        return [one.describe(self.first.label, self.second.label) for one in found]


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
    names = common_datasets(first, second)
    paired = [pair_up(name, first, second) for name in names]
    # Where no problem is known to be the same, it is the whole data that differ.
    matched = [one.dataset for one in paired if one.same_data or one.pairs]
    settings = run_differences(first.record, second.record, names, matched)
    # Problems have checkers of their own, so verdicts can differ where the configurations do not.
    configured = any(one.what.endswith((".method", ".checker")) for one in settings.protocol)
    judged = [] if configured else [found for one in paired for found in _method_mismatch(one)]
    return Comparison(
        first=first,
        second=second,
        datasets=[_compared(one) for one in paired],
        mismatches=[*settings.protocol, *judged],
        unknown=settings.unknown,
        noted=settings.noted,
        unshared=[
            UnsharedDataset(run.label, name)
            for run in (first, second)
            for name in run.verdicts
            if name not in names
        ],
    )


def require_same_protocol(comparison: Comparison) -> None:
    """Refuse to compare runs that differ in more than the model.

    Raises:
        DataError: The protocols differ; one line with each difference and both values.
    """
    if warnings := comparison.warnings:
        first, second = comparison.first, comparison.second
        hidden = len(warnings) - _SHOWN
        more = f"; and {hidden} more differences" if hidden > 0 else ""
        raise DataError(
            f"{first.run.folder.shown} ({first.label}) and {second.run.folder.shown} "
            f"({second.label}) cannot be compared: {'; '.join(warnings[:_SHOWN])}{more}; repeat "
            "one of the runs with the other's settings (plumb compare --force compares anyway)"
        )


def dataset_score(run: ComparedRun, dataset: str) -> DatasetScore:
    verdicts = run.verdicts.get(dataset, {})
    judged = {sample: verdict for sample, verdict in verdicts.items() if verdict.judged}
    share = ratio(sum(verdict.accepted for verdict in judged.values()), len(judged))
    problems = len({sample.problem_id for sample in judged})
    return DatasetScore(len(judged), share, wilson_interval(share, problems))


# Pairing


def pair_up(dataset: str, first: ComparedRun, second: ComparedRun) -> PairedSamples:
    """Pair the samples of a data set by problem and index.

    If the runs' data differ, for one because one run has a part of the problems, only samples of
    problems whose recorded content is the same are paired.
    """
    ours, theirs = first.verdicts[dataset], second.verdicts[dataset]
    both = sorted(ours.keys() & theirs.keys())
    same_data = first.data_sha256(dataset) == second.data_sha256(dataset)
    same = both if same_data else [one for one in both if _same_problem(one, first, second)]
    pairs = list(_judged_pairs(same, ours, theirs))
    unpaired = Unpaired(
        only_first=len(ours) - len(both),
        only_second=len(theirs) - len(both),
        api_error=len(same) - len(pairs),
        changed=len(both) - len(same),
    )
    return PairedSamples(dataset, pairs, unpaired, same_data)


def _same_problem(sample: SampleId, first: ComparedRun, second: ComparedRun) -> bool:
    ours, theirs = (
        run.digests.get(sample.dataset, {}).get(sample.problem_id) for run in (first, second)
    )
    return ours is not None and ours == theirs


def _judged_pairs(
    samples: list[SampleId],
    ours: Mapping[SampleId, SampleVerdict],
    theirs: Mapping[SampleId, SampleVerdict],
) -> Iterator[Pair]:
    for sample in samples:
        if ours[sample].judged and theirs[sample].judged:
            yield Pair(sample, ours[sample], theirs[sample])


def _problem_means(pairs: list[Pair], value: Callable[[Pair], float]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for pair in pairs:
        values.setdefault(pair.sample.problem_id, []).append(value(pair))
    return {problem: mean(each) or 0.0 for problem, each in values.items()}


def _compared(paired: PairedSamples) -> DatasetComparison:
    return DatasetComparison(
        paired,
        accepted_at_1=paired.difference(lambda verdict: float(verdict.accepted)),
        pass_ratio_mean=paired.difference(_pass_ratio),
        pass_ratio_bounds=_pass_ratio_bounds(paired) if paired.cut else None,
    )


def _pass_ratio(verdict: SampleVerdict) -> float:
    return verdict.pass_ratio


def _pass_ratio_high(verdict: SampleVerdict) -> float:
    return verdict.pass_ratio_high


def _pass_ratio_bounds(paired: PairedSamples) -> PassRatioBounds:
    return PassRatioBounds(
        worst=paired.difference(_pass_ratio_high, _pass_ratio),
        best=paired.difference(_pass_ratio, _pass_ratio_high),
    )


def _method_mismatch(paired: PairedSamples) -> Iterator[Mismatch]:
    """The first sample that the runs judged with different methods or checkers."""
    for pair in paired.pairs:
        ours = (pair.first.method, pair.first.checker)
        theirs = (pair.second.method, pair.second.checker)
        # The guard rejects answers before judging: empty, too long, or not valid text.
        if ours != theirs and JudgeMethod.GUARD not in (ours[0], theirs[0]):
            what = f"method and checker of {paired.dataset} {pair.sample.problem_id}"
            yield Mismatch(what, " and ".join(ours), " and ".join(theirs))
            return


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
class FlipDocument:
    problem_id: str
    sample_index: int
    first: SampleVerdict
    second: SampleVerdict


@dataclass(frozen=True, slots=True)
class DatasetDocument:
    samples: int
    same_data: bool
    samples_cut: int
    left_out: Unpaired
    accepted_at_1: PairedDifference
    pass_ratio_mean: PairedDifference
    pass_ratio_bounds: PassRatioBounds | None
    gained: list[FlipDocument]
    lost: list[FlipDocument]


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
    final_sets: list[FinalSetUse]


def comparison_document(
    comparisons: Sequence[Comparison], final_sets: Sequence[FinalSetUse] = ()
) -> ComparisonDocument:
    runs = [comparisons[0].first, *(one.second for one in comparisons)]
    return ComparisonDocument(
        runs=[_run_document(run) for run in runs],
        comparisons=[
            PairDocument(
                first=one.first.label,
                second=one.second.label,
                mismatches=one.mismatches,
                unknown=one.unknown,
                noted=one.noted,
                unshared=one.unshared,
                datasets={each.paired.dataset: _dataset_document(each) for each in one.datasets},
            )
            for one in comparisons
        ],
        final_sets=list(final_sets),
    )


def _run_document(run: ComparedRun) -> RunDocument:
    return RunDocument(
        label=run.label,
        folder=run.run.folder.shown,
        name=run.run.name,
        model=run.record.model,
        notes=run.notes,
        datasets={name: dataset_score(run, name) for name in run.verdicts},
    )


def _dataset_document(compared: DatasetComparison) -> DatasetDocument:
    paired = compared.paired
    return DatasetDocument(
        samples=len(paired.pairs),
        same_data=paired.same_data,
        samples_cut=paired.cut,
        left_out=paired.unpaired,
        accepted_at_1=compared.accepted_at_1,
        pass_ratio_mean=compared.pass_ratio_mean,
        pass_ratio_bounds=compared.pass_ratio_bounds,
        gained=[_flip_document(pair) for pair in paired.gained],
        lost=[_flip_document(pair) for pair in paired.lost],
    )


def _flip_document(pair: Pair) -> FlipDocument:
    sample = pair.sample
    return FlipDocument(sample.problem_id, sample.sample_index, pair.first, pair.second)
