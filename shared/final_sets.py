"""Use of final sets: the models and protocols that were measured on a set that is not tuned on.

The published runs in a run's folder and in those beside it are counted, by their ``run.json``.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.artifacts import RUN, OutputFolder
from shared.config_differences import protocol_on
from shared.errors import OutputError
from shared.finished_run import FinishedRun
from shared.run_record import RunRecord, read_record

# A reference run and a candidate are compared on a final set; to choose among more is to tune.
_MODELS_COMPARED = 2


@dataclass(frozen=True, slots=True)
class FinalSetUse:
    """The runs on a final set; ``protocols`` and ``models`` are numbers of different ones."""

    dataset: str
    runs: int
    protocols: int
    models: int

    @property
    def tuned(self) -> bool:
        """Whether several protocols were tried, or more models than a comparison of two has."""
        return self.protocols > 1 or self.models > _MODELS_COMPARED

    def describe(self) -> str:
        """A phrase: how many runs tried how many protocols with how many models."""
        return (
            f"{_count(self.runs, 'run')} tried {_count(self.protocols, 'protocol')} with "
            f"{_count(self.models, 'model')}"
        )


def final_set_uses(runs: Sequence[FinishedRun]) -> list[FinalSetUse]:
    """Count the runs on the final sets of some runs, which count as well."""
    own = [run.record for run in runs]
    if not any(_final_sets(record) for record in own):
        return []
    beside = [record for run in runs for record in _records_beside(run.folder)]
    return uses(own, beside)


def uses(own: Sequence[RunRecord], others: Iterable[RunRecord]) -> list[FinalSetUse]:
    """Count the runs on each final set of ``own``; a run may occur several times.

    Runs on other problems under the same name are runs on another set.
    """
    distinct = {(one.run, one.fingerprint, one.served_model): one for one in (*others, *own)}
    names = dict.fromkeys(name for record in own for name in _final_sets(record))
    return [
        _use(dataset, [one for one in distinct.values() if (dataset, digest) in _final_sets(one)])
        for dataset, digest in names
    ]


def advice(final_sets: Iterable[FinalSetUse], others: Iterable[str]) -> list[str]:
    """Name the final sets on which a choice was made, and where to make it; one line for each.

    Args:
        final_sets: The runs on each set; sets with the same ones share a line.
        others: Data sets of the runs in question that are not final.
    """
    where = " or ".join(others) or "a set that is not final"
    names: dict[str, list[str]] = {}
    for use in final_sets:
        if use.tuned:
            names.setdefault(use.describe(), []).append(use.dataset)
    return [
        f"{' and '.join(sets)} {'is' if len(sets) == 1 else 'are'} marked final, but {tried} on "
        f"{'it' if len(sets) == 1 else 'each'}: choose on {where}"
        for tried, sets in names.items()
    ]


def _final_sets(record: RunRecord) -> list[tuple[str, str]]:
    """Name and hash of each final set of a run."""
    final = record.config.data.final_sets
    return [(one.dataset, one.sha256) for one in record.datasets if one.dataset in final]


def _records_beside(folder: OutputFolder) -> list[RunRecord]:
    """The published runs of the folders beside one, as far as this version reads them."""
    place = (folder.path if folder.local else folder.url.rstrip("/")).rpartition("/")[0]
    if place.endswith("/"):  # nothing is beside a bucket
        return []
    records = []
    try:
        names = OutputFolder(place or "/").names("")
    except OutputError:  # not for this user
        return []
    for name in names:
        beside = OutputFolder(f"{place}/{name}")
        try:
            if (document := beside.read_json(RUN)) is not None:
                records.append(read_record(document, beside.shown))
        except OutputError:  # of another version, or not for this user, such as a folder of /tmp
            continue
    return [record for record in records if record.state.published]


def _use(dataset: str, records: Sequence[RunRecord]) -> FinalSetUse:
    protocols = {json.dumps(protocol_on(one.config, dataset), sort_keys=True) for one in records}
    # The model of recorded answers may be unknown.
    models = {one.served_model for one in records if one.served_model}
    return FinalSetUse(dataset, len(records), len(protocols), max(1, len(models)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
