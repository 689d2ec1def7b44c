"""Two runs compared, and each run's own numbers: what `plumb compare` and `plumb gate` show."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from services.cli.analysis_pairs import Pair, PairedSamples, accepted, pair_up, pass_ratio
from services.cli.analysis_protocol import Mismatch, mismatches
from services.cli.analysis_runs import ComparedRun, Judged, common_datasets
from shared.errors import DataError
from shared.analysis.paired import PairedDifference
from shared.analysis.statistics import ratio, wilson_interval

_SHOWN = 5


@dataclass(frozen=True)
class DatasetComparison:
    """One data set of two runs."""

    paired: PairedSamples
    accepted_at_1: PairedDifference
    pass_ratio_mean: PairedDifference


@dataclass(frozen=True)
class Comparison:
    """The second run against the first.

    ``mismatches`` says what makes them no comparison of models; ``unshared`` are data sets of one
    run alone, with the run's letter.
    """

    first: ComparedRun
    second: ComparedRun
    datasets: list[DatasetComparison]
    mismatches: list[Mismatch]
    unshared: list[tuple[str, str]]

    @property
    def warnings(self) -> list[str]:
        """What differs, a line each."""
        return [one.said(self.first.label, self.second.label) for one in self.mismatches]


@dataclass(frozen=True, slots=True)
class OwnValue:
    """One run's share accepted over all its judged samples, with its interval at 95 %."""

    samples: int
    accepted_at_1: float | None
    ci95: list[float] | None


def compare_runs(first: ComparedRun, second: ComparedRun) -> Comparison:
    """Compare two runs over the data sets that both have.

    Raises:
        DataError: There is none.
    """
    names = common_datasets(first, second)
    paired = [pair_up(name, first, second) for name in names]
    return Comparison(
        first=first,
        second=second,
        datasets=[_compared(one) for one in paired],
        mismatches=mismatches(first, second, paired),
        unshared=[
            (run.label, name)
            for run in (first, second)
            for name in run.verdicts
            if name not in names
        ],
    )


def refuse(comparison: Comparison) -> None:
    """Refuse to compare runs that differ in more than the model.

    Raises:
        DataError: They do; one line with what differs and both values.
    """
    if said := comparison.warnings:
        first, second = comparison.first, comparison.second
        more = f"; and {len(said) - _SHOWN} differences more" if len(said) > _SHOWN else ""
        raise DataError(
            f"{first.run.folder.url} ({first.label}) and {second.run.folder.url} "
            f"({second.label}) cannot be compared: {'; '.join(said[:_SHOWN])}{more}; run one "
            "of them again the other's way (plumb compare --force shows the numbers all the same)"
        )


def own_value(run: ComparedRun, dataset: str) -> OwnValue:
    verdicts = run.verdicts.get(dataset, {})
    judged = {sample: verdict for sample, verdict in verdicts.items() if verdict.judged}
    share = ratio(sum(verdict.accepted for verdict in judged.values()), len(judged))
    problems = len({sample.problem_id for sample in judged})
    return OwnValue(len(judged), share, wilson_interval(share, problems))


def comparison_document(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """All that was found, as JSON; the first run is the same in all comparisons."""
    runs = [comparisons[0].first, *(one.second for one in comparisons)]
    return {
        "runs": [_run_document(run) for run in runs],
        "comparisons": [
            {
                "first": one.first.label,
                "second": one.second.label,
                "mismatches": [asdict(found) for found in one.mismatches],
                "unshared": [{"run": run, "dataset": name} for run, name in one.unshared],
                "datasets": {d.paired.dataset: _dataset_document(d) for d in one.datasets},
            }
            for one in comparisons
        ],
    }


def _compared(paired: PairedSamples) -> DatasetComparison:
    return DatasetComparison(paired, paired.difference(accepted), paired.difference(pass_ratio))


def _run_document(run: ComparedRun) -> dict[str, Any]:
    return {
        "label": run.label,
        "folder": run.run.folder.url,
        "name": run.run.name,
        "model": run.run.run.get("model"),
        "notes": run.notes,
        "datasets": {name: asdict(own_value(run, name)) for name in run.verdicts},
    }


def _dataset_document(compared: DatasetComparison) -> dict[str, Any]:
    paired = compared.paired
    return {
        "samples": len(paired.pairs),
        "left_out": asdict(paired.left_out),
        "accepted_at_1": asdict(compared.accepted_at_1),
        "pass_ratio_mean": asdict(compared.pass_ratio_mean),
        "gained": [_flip_document(pair) for pair in paired.gained],
        "lost": [_flip_document(pair) for pair in paired.lost],
    }


def _flip_document(pair: Pair) -> dict[str, Any]:
    return {
        "problem_id": pair.sample.problem_id,
        "sample_index": pair.sample.sample_index,
        "first": _judged_document(pair.first),
        "second": _judged_document(pair.second),
    }


def _judged_document(judged: Judged) -> dict[str, Any]:
    return {field.name: getattr(judged, field.name) for field in fields(judged)}
