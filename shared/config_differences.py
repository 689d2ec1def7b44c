"""Configurations compared as they take effect: the protocol on a data set, and where two differ.

A judge setting counts with the value that a data set has in the end, its own or the general one, so
the same measurement that is written in two ways has no difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from shared.config import Config, JudgeConfig
from shared.protocol import LeafDifference, LeafRole, Role, differences, values


@dataclass(frozen=True, slots=True)
class ConfigDifferences:
    """Differences between the configurations of two compared runs, by the role of the leaf.

    ``protocol``: the runs are not the same measurement. ``subject``: the settings that a comparison
    is about (model, seed). ``numerics``: engine settings that can change low bits of the results.
    """

    protocol: list[LeafDifference]
    subject: list[LeafDifference]
    numerics: list[LeafDifference]


def compare_configs(first: Config, second: Config, datasets: Sequence[str]) -> ConfigDifferences:
    """Compare two configurations over the data sets that both runs have.

    Judge settings are compared as they take effect for each data set, and templates of other data
    sets do not count. A judge setting that differs alike for all data sets is named once.
    """
    ours, theirs = (_protocol_outside_judge(config, datasets) for config in (first, second))
    judged = {
        dataset: differences(*(_effective_judge(config, dataset) for config in (first, second)))
        for dataset in datasets
    }
    return ConfigDifferences(
        protocol=[*differences(ours, theirs), *_by_setting(judged)],
        subject=differences(*(values(one, lambda leaf: leaf.subject) for one in (first, second))),
        numerics=differences(*(values(one, lambda leaf: leaf.numerics) for one in (first, second))),
    )


def protocol_on(config: Config, dataset: str) -> dict[str, JsonValue]:
    """The protocol as it takes effect for one data set, without the model and the seeds."""
    outside = _protocol_outside_judge(config, [dataset])
    others = {path: value for path, value in outside.items() if not path.startswith("judge.")}
    judged = _effective_judge(config, dataset)
    return {**others, **{f"judge.{path}": value for path, value in judged.items()}}


def _in_comparison(leaf: LeafRole) -> bool:
    return leaf.role is Role.PROTOCOL and not leaf.subject


def _protocol_outside_judge(config: Config, datasets: Sequence[str]) -> dict[str, JsonValue]:
    templates = {name: text for name, text in config.data.templates.items() if name in datasets}
    data = config.data.model_copy(update={"templates": templates})
    narrowed = config.model_copy(update={"judge": JudgeConfig(), "data": data})
    return values(narrowed, _in_comparison)


def _effective_judge(config: Config, dataset: str) -> dict[str, JsonValue]:
    judge = config.judge.for_dataset(dataset)
    narrowed = judge.model_copy(update={"datasets": {}, "checker": judge.effective_checker})
    return values(narrowed, _in_comparison)


def _by_setting(judged: Mapping[str, Sequence[LeafDifference]]) -> Iterator[LeafDifference]:
    """Name a difference once where all data sets have it, else for each data set."""
    settings = dict.fromkeys(leaf.path for found in judged.values() for leaf in found)
    for path in settings:
        found = {
            name: leaf for name, leaves in judged.items() for leaf in leaves if leaf.path == path
        }
        if len(found) == len(judged) and len({str(leaf) for leaf in found.values()}) == 1:
            leaf = next(iter(found.values()))
            yield LeafDifference(f"judge.{path}", leaf.first, leaf.second)
        else:
            for name, leaf in found.items():
                yield LeafDifference(f"judge.datasets.{name}.{path}", leaf.first, leaf.second)
