"""Differences in settings of two runs: in the protocol, or in settings that may vary."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shared.config_differences import compare_configs
from shared.protocol import LeafDifference, differences, shown
from shared.run_record import RunRecord

_TEMPLATES = "data.templates."
# Settings by which answers are made; of recorded completions nobody knows them.
_ANSWERING = ("actor_rollout_ref.rollout.", "data.system_prompt", "generation.stop", _TEMPLATES)
# Settings by which a run has a part of the problems.
_SELECTING = ("data.limit", "data.exclude_quality")
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
    found = compare_configs(first.config, second.config, datasets)
    prompts = _prompt_differences(first, second, datasets, found.protocol)
    brought = [run for run in (first, second) if run.completions is not None]
    protocol, unknown, selecting = [], [], []
    for leaf in found.protocol:
        if leaf.path.startswith(_TEMPLATES):
            continue
        if leaf.path.startswith(_SELECTING) and set(matched) == set(datasets):
            selecting.append(leaf)
        elif leaf.path.startswith(_ANSWERING) and brought:
            unknown.append(_setting(leaf, *(run not in brought for run in (first, second))))
        else:
            protocol.append(_setting(leaf))
    deciding, timing = _environment_differences(first, second)
    unmatched = [name for name in datasets if name not in matched]
    data = (_data_hashes(run, unmatched) for run in (first, second))
    return RunDifferences(
        protocol=[*protocol, *deciding, *prompts.protocol, *_hashes("data", *data)],
        unknown=[*unknown, *prompts.unknown],
        noted=[
            *(_setting(one) for one in (*found.subject, *found.numerics, *selecting)),
            *timing,
        ],
    )


def _environment_differences(
    first: RunRecord, second: RunRecord
) -> tuple[list[Mismatch], list[Mismatch]]:
    """What the runs' verdicts ran on: differences that decide verdicts, and those of speed."""
    if not first.environments or not second.environments:
        return [], []
    ours, theirs = first.environments[0], second.environments[0]
    return (
        [Mismatch(*found, rejudge=True) for found in ours.deciding(theirs)],
        [Mismatch(*found) for found in ours.timing(theirs)],
    )


def _prompt_differences(
    first: RunRecord,
    second: RunRecord,
    datasets: Sequence[str],
    settings: Sequence[LeafDifference],
) -> RunDifferences:
    """Differences in the configured templates, if the recorded prompts differ.

    A data set without a configured template has the default of the version that made the run. So
    recorded prompts can differ although the configurations are equal (the default has changed), and
    be equal although the configurations differ (one run has the default as its configured
    template).
    """
    configured = [_setting(one) for one in settings if one.path.startswith(_TEMPLATES)]
    ours, theirs = (_prompt_hashes(run, datasets) for run in (first, second))
    if not ours and not theirs:
        return RunDifferences(configured, [], [])
    both = ours.keys() & theirs.keys()
    recorded = _hashes("prompt template", *(_only(both, found) for found in (ours, theirs)))
    one_sided = (_only(found.keys() - both, found) for found in (ours, theirs))
    return RunDifferences(
        protocol=configured if recorded and configured else recorded,
        unknown=_hashes("prompt template", *one_sided),
        noted=[],
    )


def _only(names: Collection[str], found: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name in names}


def _prompt_hashes(run: RunRecord, datasets: Sequence[str]) -> dict[str, str]:
    """SHA-256 by template; a data set may have one template per kind of test: ``name (kind)``."""
    return {
        name: prompt.sha256
        for name, prompt in (run.prompts or {}).items()
        if any(name == dataset or name.startswith(f"{dataset} (") for dataset in datasets)
    }


def _data_hashes(run: RunRecord, datasets: Sequence[str]) -> dict[str, str]:
    return {one.dataset: one.sha256 for one in run.datasets if one.dataset in datasets}


def _setting(found: LeafDifference, *recorded: bool) -> Mismatch:
    """A setting that differs; ``recorded`` tells for each run whether it is known."""
    values = zip((found.first, found.second), recorded or (True, True), strict=True)
    first, second = [shown(value) if known else _NOT_RECORDED for value, known in values]
    return Mismatch(found.path, first, second, rejudge=found.path == "judge.rules")


def _hashes(what: str, first: Mapping[str, str], second: Mapping[str, str]) -> list[Mismatch]:
    """The hashes that differ, as one line over all data sets."""
    differing = differences(first, second)
    if not differing:
        return []
    names = [one.path for one in differing]
    sets = names[0] if len(names) == 1 else f"{len(names)} data sets ({_listed(names)})"
    return [
        Mismatch(
            f"the SHA-256 of the {what} of {sets}",
            *(_listed(map(_short, values)) for values in _columns(differing)),
        )
    ]


def _columns(found: Sequence[LeafDifference]) -> tuple[list[object], list[object]]:
    return [one.first for one in found], [one.second for one in found]


def _short(sha256: object) -> str:
    return _NOT_RECORDED if sha256 is None else str(sha256)[:_DIGITS]


def _listed(texts: Iterable[str]) -> str:
    """Different texts, the first few by name."""
    each = list(dict.fromkeys(texts))
    return ", ".join([*each[:_NAMED], *(["…"] if len(each) > _NAMED else [])])
