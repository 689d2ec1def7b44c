"""Comparing two configurations: exactly what takes effect and differs is named."""

import pytest

from shared.analysis.differences import compare_configs
from shared.config import Config, load_config
from shared.protocol import Role


def paths(*overrides: str, datasets: tuple[str, ...] = ("one", "two")) -> dict[str, list[str]]:
    found = compare_configs(Config(), load_config(None, overrides), datasets)
    return {str(role): [leaf.path for leaf in leaves] for role, leaves in found.items() if leaves}


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("sandbox.timeout=3", {"protocol": ["sandbox.timeout"]}),
        ("generation.model=other", {"subject": ["generation.model"]}),
        ("run.seed=4", {"subject": ["run.seed"]}),
        (
            "actor_rollout_ref.rollout.dtype=float16",
            {"numerics": ["actor_rollout_ref.rollout.dtype"]},
        ),
        ("judge.workers=9", {}),
        ("run.name=other", {}),
        ("judge.cpu_grace=2", {"protocol": ["judge.cpu_grace"]}),
        ("judge.method=compute_score", {"protocol": ["judge.method", "judge.checker"]}),
        ("judge.checker=tokens", {}),
        ("judge.datasets.one.max_timeouts=2", {"protocol": ["judge.datasets.one.max_timeouts"]}),
        ("judge.datasets.three.max_timeouts=2", {}),
        ("data.templates.one='Do {prompt}'", {"protocol": ["data.templates.one"]}),
        ("data.templates.three='Do {prompt}'", {}),
    ],
)
def test_a_comparison_names_exactly_what_differs(
    override: str, found: dict[str, list[str]]
) -> None:
    assert paths(override) == found


def test_settings_that_take_effect_are_compared() -> None:
    both = ["judge.datasets.one.max_timeouts=2", "judge.datasets.two.max_timeouts=2"]
    assert paths(*both) == {"protocol": ["judge.max_timeouts"]}
    first = load_config(None, ["judge.max_timeouts=2"])
    assert compare_configs(first, load_config(None, both), ["one", "two"])[Role.PROTOCOL] == []
