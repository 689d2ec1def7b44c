"""Differences in settings of two runs, and the hash of what a run measured.

Differences are in the protocol, or in settings that may vary. Runs with the same hash have the same
protocol, problems and templates; model and seeds are what such runs differ in.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from pydantic import JsonValue

from shared.analysis.statistics import MetricValue
from shared.config import Config
from shared.protocol import LeafDifference, Role, differences, shown, values
from shared.run_record import DatasetRecord, RunRecord

TEMPLATES = "data.templates."
SELECTING = ("data.limit", "data.exclude_quality")
"""Settings by which a run has a part of the problems."""
# Settings by which answers are made; of recorded completions nobody knows them.
_ANSWERING = ("actor_rollout_ref.rollout.", "data.system_prompt", "generation.stop", TEMPLATES)
_JUDGE = "judge."
_NOT_RECORDED = "not recorded"
_DIGITS = 8  # of a hash, in messages
_NAMED = 3  # data sets with the same kind of difference, in messages


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A setting with different values, formatted for messages.

    ``rejudge``: it is about the judge, so that one of the runs can be judged again.
    """

    what: str
    first: str
    second: str
    rejudge: bool = field(default=False, kw_only=True)

    def describe(self, first: str, second: str) -> str:
        return f"{self.what} is {self.first} in {first} and {self.second} in {second}"


@dataclass(frozen=True, slots=True)
class RunDifferences:
    """The settings that differ between two runs.

    ``protocol``: the runs are not the same measurement, so they are not compared. ``unknown``: one
    run did not record it, so it may be the same or not. ``noted``: settings that a comparison may
    vary, such as model and seed, and engine settings that can change low bits of greedy decoding.
    """

    protocol: list[Mismatch]
    unknown: list[Mismatch]
    noted: list[Mismatch]


def protocol_on(config: Config, dataset: str) -> dict[str, JsonValue]:
    """The protocol as it takes effect on one data set, without the model and the seeds.

    A judge setting has the data set's own value or the general one, so the same measurement that
    is written in two ways has the same protocol.
    """
    judge = config.judge.for_dataset(dataset)
    templates = {name: text for name, text in config.data.templates.items() if name == dataset}
    narrowed = config.model_copy(
        update={
            "judge": judge.model_copy(update={"datasets": {}, "checker": judge.effective_checker}),
            "data": config.data.model_copy(update={"templates": templates}),
        }
    )
    return values(narrowed, lambda role: role is Role.PROTOCOL)


def compare_configs(
    first: Config, second: Config, datasets: Sequence[str]
) -> dict[Role, list[LeafDifference]]:
    """Compare two configurations as they take effect on the data sets that both runs have.

    Returns:
        The leaves that differ by role: ``PROTOCOL`` (the runs are not the same measurement),
        ``SUBJECT`` (what a comparison is about: model, seed) and ``NUMERICS`` (engine settings that
        can change low bits of the results).
    """
    others = {
        role: differences(*(values(config, role.__eq__) for config in (first, second)))
        for role in (Role.SUBJECT, Role.NUMERICS)
    }
    return {Role.PROTOCOL: [*_protocol_differences(first, second, datasets or [""])], **others}


def _protocol_differences(
    first: Config, second: Config, datasets: Sequence[str]
) -> Iterator[LeafDifference]:
    """Name a judge setting once where it differs alike on all data sets, else for each of them."""
    by_path: dict[str, dict[str, LeafDifference]] = {}
    for dataset in datasets:
        for leaf in differences(protocol_on(first, dataset), protocol_on(second, dataset)):
            by_path.setdefault(leaf.path, {})[dataset] = leaf
    for path, leaves in by_path.items():
        alike = len(leaves) == len(datasets) and len(set(map(str, leaves.values()))) == 1
        if alike or not path.startswith(_JUDGE):
            yield next(iter(leaves.values()))
        else:
            setting = path.removeprefix(_JUDGE)
            for dataset, leaf in leaves.items():
                yield replace(leaf, path=f"{_JUDGE}datasets.{dataset}.{setting}")


def run_differences(
    first: RunRecord, second: RunRecord, datasets: Sequence[str], matched: Sequence[str]
) -> RunDifferences:
    """Compare data, prompts, and settings by role, over the data sets that both runs have.

    Args:
        first: A run.
        second: Another run.
        datasets: The data sets of both.
        matched: Those whose problems were found to be the same, one by one.
    """
    settings = compare_configs(first.config, second.config, datasets)
    protocol, unknown, selecting, templates = [], [], [], []
    recorded = [run.completions is None for run in (first, second)]
    for leaf in settings[Role.PROTOCOL]:
        if leaf.path.startswith(TEMPLATES):
            templates.append(_setting(leaf))
        elif leaf.path.startswith(SELECTING) and set(matched) == set(datasets):
            selecting.append(leaf)
        elif leaf.path.startswith(_ANSWERING) and not all(recorded):
            unknown.append(_setting(leaf, *recorded))
        else:
            protocol.append(_setting(leaf))
    deciding, timing = [], []  # of what the verdicts ran on: what decides them, and speed
    if first.environments and second.environments:
        ours, theirs = first.environments[0], second.environments[0]
        deciding = [Mismatch(*change, rejudge=True) for change in ours.deciding(theirs)]
        timing = [Mismatch(*change) for change in ours.timing(theirs)]
    prompts, doubtful = _prompt_differences(first, second, datasets, templates)
    unmatched = {*datasets} - {*matched}
    data = (
        {recorded.dataset: recorded.sha256 for recorded in run.datasets} for run in (first, second)
    )
    data = ({name: run[name] for name in run if name in unmatched} for run in data)
    varied = (*settings[Role.SUBJECT], *settings[Role.NUMERICS], *selecting)
    return RunDifferences(
        protocol=[*protocol, *deciding, *prompts, *_hashes("data", *data)],
        unknown=[*unknown, *doubtful],
        noted=[*map(_setting, varied), *timing],
    )


def _prompt_differences(
    first: RunRecord, second: RunRecord, datasets: Sequence[str], configured: list[Mismatch]
) -> tuple[list[Mismatch], list[Mismatch]]:
    """Differences in prompts, and what only one run recorded.

    A data set without a configured template has the default of the version that made the run. So
    recorded prompts can differ although the configurations are equal (the default has changed), and
    be equal although the configurations differ (one run has the default as its configured
    template). The configured templates are named if the recorded prompts differ, or are unknown.
    """
    sides = ours, theirs = [prompt_hashes(run, datasets) for run in (first, second)]
    if not ours and not theirs:
        return configured, []
    both = ours.keys() & theirs.keys()
    one_sided, differing = (
        _hashes(
            "prompt template",
            *({name: run[name] for name in run if (name in both) is shared} for run in sides),
        )
        for shared in (False, True)
    )
    return (configured if differing and configured else differing), one_sided


def prompt_hashes(run: RunRecord, datasets: Iterable[str]) -> dict[str, str]:
    """SHA-256 by template; a data set may have one template per kind of test: ``name (kind)``."""
    return {
        name: prompt.sha256
        for name, prompt in (run.prompts or {}).items()
        if any(name == dataset or name.startswith(f"{dataset} (") for dataset in datasets)
    }


def _setting(leaf: LeafDifference, *recorded: bool) -> Mismatch:
    """A setting that differs; ``recorded`` tells for each run whether it is known."""
    sides = zip((leaf.first, leaf.second), recorded or (True, True), strict=True)
    first, second = [shown(value) if is_recorded else _NOT_RECORDED for value, is_recorded in sides]
    return Mismatch(leaf.path, first, second, rejudge=leaf.path == "judge.rules")


def _hashes(what: str, first: Mapping[str, str], second: Mapping[str, str]) -> list[Mismatch]:
    """The hashes that differ, as one line over all data sets."""
    differing = differences(first, second)
    if not differing:
        return []
    names = [leaf.path for leaf in differing]
    sets = names[0] if len(names) == 1 else f"{len(names)} data sets ({_listed(names)})"
    sides = ([leaf.first for leaf in differing], [leaf.second for leaf in differing])
    return [
        Mismatch(
            f"the SHA-256 of the {what} of {sets}",
            *(_listed(_short(value) for value in side) for side in sides),
        )
    ]


def _short(sha256: JsonValue) -> str:
    return _NOT_RECORDED if sha256 is None else str(sha256)[:_DIGITS]


def _listed(texts: Iterable[str]) -> str:
    """Different texts, the first few by name."""
    names = list(dict.fromkeys(texts))
    return ", ".join([*names[:_NAMED], *(["…"] if len(names) > _NAMED else [])])


# Hash of a measurement


T = TypeVar("T")
_HASH_DIGITS = 16
# Settings that differ between the checkpoints of a training, so that their protocol is found once.
_NEVER_PROTOCOL: dict[str, bool | set[str]] = {
    "run": True,
    "actor_rollout_ref": {"model"},
    "generation": {"model", "base_urls", "seed"},
}


def dataset_hashes(record: RunRecord) -> dict[str, str]:
    """Hash of what a run measured, by data set."""
    config = record.config.model_dump_json(exclude=_NEVER_PROTOCOL)
    return {
        dataset.dataset: hash_of([dataset.dataset, *_measured(record, dataset, config)])
        for dataset in record.datasets
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


def _measured(record: RunRecord, dataset: DatasetRecord, config: str) -> list[JsonValue]:
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


@lru_cache(maxsize=256)
def _protocol(config: str, dataset: str) -> Mapping[str, JsonValue]:
    """The protocol of a configuration (JSON): the runs of a training have it in common."""
    return protocol_on(Config.model_validate_json(config), dataset)


def hash_of(measured: JsonValue) -> str:
    text = json.dumps(measured, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
