"""Hash of a measurement: protocol, problems and templates of a run, which a trend's runs share.

Model and seeds are left out: they are what such runs differ in.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from pydantic import JsonValue

from shared.analysis.differences import SELECTING, TEMPLATES, prompt_hashes, protocol_on
from shared.analysis.statistics import MetricValue
from shared.config import Config
from shared.run_record import DatasetRecord, RunRecord

T = TypeVar("T")
_HASH_DIGITS = 16
# Settings that differ between the checkpoints of a training, so that their protocol is found once.
_NEVER_PROTOCOL: dict[str, bool | set[str]] = {
    "run": True,
    "actor_rollout_ref": {"model"},
    "generation": {"model", "base_urls", "seed"},
}


def measurement_hash(record: RunRecord) -> str:
    """Hash of what a run measured on all of its data sets."""
    config = _settings(record)
    return _hash({one.dataset: _measured(record, one, config) for one in record.datasets})


def dataset_hashes(record: RunRecord) -> dict[str, str]:
    """Hash of what a run measured, by data set."""
    config = _settings(record)
    return {
        one.dataset: _hash({one.dataset: _measured(record, one, config)}) for one in record.datasets
    }


def changes(
    runs: Iterable[tuple[T, Mapping[str, str], Mapping[str, MetricValue], bool]],
) -> Iterator[tuple[T, str, T, float]]:
    """Compare accepted@1 of each run with the last run before it that measured the same.

    Args:
        runs: The earliest first: the run, the hash of each data set's measurement, the score on
            each data set, and whether later runs may be compared with it.

    Yields:
        Run, data set, the run before, and the difference of the scores.
    """
    before: dict[str, tuple[T, float]] = {}
    for run, hashes, shares, is_baseline in runs:
        for dataset, share in shares.items():
            measured = hashes.get(dataset)
            if measured is None or not isinstance(share, int | float):
                continue
            if earlier := before.get(measured):
                yield run, dataset, earlier[0], share - earlier[1]
            if is_baseline:
                before[measured] = run, share


def _measured(record: RunRecord, dataset: DatasetRecord, config: str) -> JsonValue:
    """The protocol as it takes effect on the data set, and its problems and templates.

    Templates count by their recorded hashes, and the choice of problems by the hash of the data,
    where these are known.
    """
    name = dataset.dataset
    templates: dict[str, JsonValue] = {**prompt_hashes(record, [name])}
    left_out = (*(SELECTING if dataset.sha256 else ()), *((TEMPLATES,) if templates else ()))
    protocol = {
        path: value
        for path, value in _protocol(config, name).items()
        if not (left_out and path.startswith(left_out))
    }
    problems: JsonValue = dataset.sha256 or [dataset.problems, dataset.samples]
    return [protocol, problems, templates]


def _settings(record: RunRecord) -> str:
    return record.config.model_dump_json(exclude=_NEVER_PROTOCOL)


@lru_cache(maxsize=256)
def _protocol(config: str, dataset: str) -> Mapping[str, JsonValue]:
    """The protocol of a configuration (JSON): the runs of a training have it in common."""
    return protocol_on(Config.model_validate_json(config), dataset)


def _hash(measured: JsonValue) -> str:
    text = json.dumps(measured, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
