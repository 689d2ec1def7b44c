"""Differences in settings of two runs: in the protocol, or in settings that may vary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.config_differences import compare_configs
from shared.protocol import LeafDifference, differences, shown
from shared.run_record import RunRecord

_TEMPLATES = "data.templates."
_NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A setting with different values, formatted for messages."""

    what: str
    first: str
    second: str

    def describe(self, first: str, second: str) -> str:
        return f"{self.what} is {self.first} in {first} and {self.second} in {second}"


@dataclass(frozen=True, slots=True)
class RunDifferences:
    """The settings that differ between two runs.

    ``protocol``: the runs are not the same measurement, so they are not compared. ``noted``:
    settings that a comparison may vary, such as model and seed, and engine settings that can change
    low bits of greedy decoding.
    """

    protocol: list[Mismatch]
    noted: list[Mismatch]


def run_differences(first: RunRecord, second: RunRecord, datasets: Sequence[str]) -> RunDifferences:
    """Compare data, prompts, and settings by role, over the data sets that both runs have."""
    found = compare_configs(first.config, second.config, datasets)
    templates = [one for one in found.protocol if one.path.startswith(_TEMPLATES)]
    others = [one for one in found.protocol if one not in templates]
    return RunDifferences(
        protocol=[
            *map(_setting, others),
            *_prompt_differences(first, second, datasets, templates),
            *_recorded(_data_hashes(first, datasets), _data_hashes(second, datasets)),
        ],
        noted=[_setting(one) for one in (*found.subject, *found.numerics)],
    )


def _prompt_differences(
    first: RunRecord,
    second: RunRecord,
    datasets: Sequence[str],
    templates: Sequence[LeafDifference],
) -> list[Mismatch]:
    """Differences in the configured templates, if the recorded prompts differ.

    A data set without a configured template has the default of the version that made the run. So
    recorded prompts can differ although the configurations are equal (the default has changed), and
    be equal although the configurations differ (one run has the default as its configured
    template).
    """
    configured = [_setting(one) for one in templates]
    if first.prompts is None and second.prompts is None:
        return configured
    recorded = _recorded(_prompt_hashes(first, datasets), _prompt_hashes(second, datasets))
    return configured if recorded and configured else recorded


def _prompt_hashes(run: RunRecord, datasets: Sequence[str]) -> dict[str, str]:
    """SHA-256 by template; a data set may have one template per kind of test: ``name (kind)``."""
    return {
        f"the prompt template's SHA-256 of {name}": prompt.sha256
        for name, prompt in (run.prompts or {}).items()
        if any(name == dataset or name.startswith(f"{dataset} (") for dataset in datasets)
    }


def _data_hashes(run: RunRecord, datasets: Sequence[str]) -> dict[str, str]:
    return {
        f"the SHA-256 of {one.dataset}": one.sha256
        for one in run.datasets
        if one.dataset in datasets
    }


def _setting(found: LeafDifference) -> Mismatch:
    return Mismatch(found.path, shown(found.first), shown(found.second))


def _recorded(first: Mapping[str, str], second: Mapping[str, str]) -> list[Mismatch]:
    return [
        Mismatch(one.path, str(one.first or _NOT_RECORDED), str(one.second or _NOT_RECORDED))
        for one in differences(first, second)
    ]
