"""Change of accepted@1 from a run to the next one that measured the same, per data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.analysis import measurement
from shared.errors import OutputError
from shared.finished_run import FinishedRun

if TYPE_CHECKING:
    from shared.analysis.runs import ComparedRun

# Samples whose verdicts are read for intervals: about a second.
_MOST_SAMPLES = 20_000


@dataclass(frozen=True, slots=True)
class Change:
    """The change of accepted@1 since the run before; shares from -1 to 1.

    ``ci95`` is the 95 % confidence interval over the samples that both runs have; None if their
    verdicts were not read.
    """

    difference: float
    ci95: list[float] | None


def changes(latest_first: Sequence[FinishedRun]) -> dict[tuple[str, str], Change]:
    """Find the changes by a run's folder and data set.

    Two runs measured the same if problems, prompts and protocol agree on the data set; model and
    seeds may differ. Runs without artifacts, and those whose sandboxes cannot be trusted, are left
    out. Verdicts are read for the intervals of the latest runs, until ``_MOST_SAMPLES`` were read.
    """
    pairs = measurement.changes(
        (
            run,
            measurement.dataset_hashes(run.record),
            {name: metrics.get("accepted_at_1") for name, metrics in run.summary.items()},
            True,
        )
        for run in reversed(latest_first)
        if not run.record.distrust
    )
    verdicts = _Verdicts()
    return {
        (run.folder.url, dataset): Change(difference, verdicts.interval(dataset, earlier, run))
        for run, dataset, earlier, difference in reversed([*pairs])
    }


class _Verdicts:
    """Intervals from the verdicts of runs, each of which is read once."""

    def __init__(self) -> None:
        self._read: dict[str, ComparedRun | None] = {}
        self._left = _MOST_SAMPLES

    def interval(self, dataset: str, first: FinishedRun, second: FinishedRun) -> list[float] | None:
        # Imported here because numpy takes long to import, and most folders have one run.
        from shared.analysis.compare import pair_up

        ours, theirs = (self._run(run) for run in (first, second))
        if ours is None or theirs is None:
            return None
        if dataset not in ours.verdicts or dataset not in theirs.verdicts:
            return None
        paired = pair_up(dataset, ours, theirs)
        return paired.difference(lambda verdicts: verdicts.accepted.astype(float)).ci95

    def _run(self, run: FinishedRun) -> "ComparedRun | None":
        """The run with its verdicts; None if they are too many, or cannot be read."""
        from shared.analysis.runs import read_runs

        url = run.folder.url
        if url not in self._read:
            self._left -= run.record.samples
            try:
                self._read[url] = read_runs([url])[0] if self._left >= 0 else None
            except OutputError:
                self._read[url] = None
        return self._read[url]
