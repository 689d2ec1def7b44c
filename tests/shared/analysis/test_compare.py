"""Protocol differences that make two runs incomparable."""

import random
from pathlib import Path

import pytest

from shared.analysis.compare import Unpaired, compare_runs, require_same_protocol
from shared.analysis.differences import compare_configs
from shared.analysis.runs import STATUSES, read_runs
from shared.config import Config, load_config
from shared.errors import DataError
from shared.protocol import Role
from tests.shared.finished_runs import write_run

ROLLOUT = "config.actor_rollout_ref.rollout"
ONE = {"dataset": "one", "problems": 2, "samples": 2}
CHANGES = [
    (f"{ROLLOUT}.temperature", 0.8, "temperature is 0.0 in A and 0.8 in B"),
    ("config.generation.stop", ["END"], 'generation.stop is [] in A and ["END"] in B'),
    ("prompts.one.sha256", "bb", "the prompt template of one is aa in A and bb in B"),
    ("config.judge.datasets", {"one": {"max_timeouts": 3}}, "max_timeouts is 4 in A and 3 in B"),
    ("config.judge.max_timeouts", None, "judge.max_timeouts is 4 in A and not set in B"),
    ("datasets", [{**ONE, "sha256": "zz"}], "the data of one is hash-one in A and zz in B"),
]


@pytest.mark.parametrize(("key", "value", "said"), CHANGES)
def test_a_difference_that_is_not_the_models_is_found(tmp_path, key, value, said):
    first = write_run(tmp_path / "a", {"one": "+-"})
    second = write_run(tmp_path / "b", {"one": "+-"}, change={key: value})
    comparison = compare_runs(*read_runs([first, second]))
    (warning,) = comparison.warnings
    assert said in warning
    assert comparison.notes == []
    with pytest.raises(DataError) as caught:
        require_same_protocol(comparison)
    assert said in str(caught.value)


def test_what_a_run_did_not_record_is_in_doubt(tmp_path):
    first = write_run(tmp_path / "a", {"one": "+-"}, change={f"{ROLLOUT}.temperature": 0.8})
    brought = {"prompts": None, "completions": "answers.jsonl"}
    second = write_run(tmp_path / "b", {"one": "+-"}, change=brought)
    comparison = compare_runs(*read_runs([first, second]))
    require_same_protocol(comparison)
    assert comparison.doubts == [
        "actor_rollout_ref.rollout.temperature is 0.8 in A and not recorded in B",
        "the SHA-256 of the prompt template of one is aa in A and not recorded in B",
    ]


def test_of_different_data_the_problems_that_are_the_same_are_paired(tmp_path):
    first = write_run(tmp_path / "a", {"one": "+-+-"}, digests={"one": "wxyz"})
    part = {"datasets.0.sha256": "zz", "config.data.limit": 3}
    second = write_run(tmp_path / "b", {"one": "+++"}, digests={"one": "wX!y"[:3]}, change=part)
    comparison = compare_runs(*read_runs([first, second]))
    require_same_protocol(comparison)
    (one,) = comparison.datasets
    assert [one.pair(place).problem_id for place in range(len(one))] == ["p000"]
    assert one.left_out == Unpaired(only_first=1, only_second=0, api_error=0, changed=2)
    assert comparison.notes == ["data.limit is not set in A and 3 in B"]


@pytest.mark.parametrize("digests", [{}, {"one": "vwx"}])
def test_data_of_which_no_problem_is_known_to_be_the_same_are_not_compared(tmp_path, digests):
    first = write_run(tmp_path / "a", {"one": "+-+"}, digests={"one": "abc"})
    other = {"datasets.0.sha256": "zz"}
    second = write_run(tmp_path / "b", {"one": "+++"}, digests=digests, change=other)
    (warning,) = compare_runs(*read_runs([first, second])).warnings
    assert warning == "the SHA-256 of the data of one is hash-one in A and zz in B"


def test_another_template_is_named_by_its_leaf_where_the_prompts_differ(tmp_path):
    template = {"config.data.templates": {"one": "Do {prompt}"}}
    first = write_run(tmp_path / "a", {"one": "+-"})
    second = write_run(tmp_path / "b", {"one": "+-"}, change=template)
    assert compare_runs(*read_runs([first, second])).warnings == []
    third = write_run(tmp_path / "c", {"one": "+-"}, change={**template, "prompts.one.sha256": "b"})
    (warning,) = compare_runs(*read_runs([first, third])).warnings
    assert warning == 'data.templates.one is not set in A and "Do {prompt}" in B'


def test_model_seed_and_engine_may_differ_and_are_noted(tmp_path):
    changes = {
        "config.actor_rollout_ref.model.path": "other",
        "config.run.seed": 3,
        f"{ROLLOUT}.dtype": "float16",
        f"{ROLLOUT}.gpu_memory_utilization": 0.5,
        "config.generation.base_urls": ["http://elsewhere"],
        "config.judge.workers": 7,
    }
    first = write_run(tmp_path / "a", {"one": "+-"})
    second = write_run(tmp_path / "b", {"one": "+-"}, change=changes)
    comparison = compare_runs(*read_runs([first, second]))
    assert comparison.warnings == []
    assert comparison.notes == [
        'actor_rollout_ref.model.path is "" in A and "other" in B',
        "run.seed is 0 in A and 3 in B",
        'actor_rollout_ref.rollout.dtype is "bfloat16" in A and "float16" in B',
    ]


# Runs as columns


def test_rows_are_sorted_and_the_last_verdict_of_a_sample_counts(tmp_path: Path) -> None:
    folder = Path(write_run(tmp_path / "a", {"d1": ["+-t", "e+", "!", "--"], "d2": "+-"}))
    (ordered,) = read_runs([str(folder)])
    lines = (folder / "verdicts.jsonl").read_text().splitlines(keepends=True)
    first = next(line for line in lines if '"d1"' in line)
    outdated = first.replace('"accepted":true', '"accepted":false')
    assert outdated != first
    random.Random(1).shuffle(lines)
    (folder / "verdicts.jsonl").write_text("".join([outdated, *lines]))
    (run,) = read_runs([str(folder)])
    for name in ("d1", "d2"):
        one, other = ordered.verdicts[name], run.verdicts[name]
        assert one.problem_ids == other.problem_ids
        assert list(one.keys()) == sorted(other.keys())
        for row in range(len(one)):
            assert one.verdict(row) == other.verdict(row)
    assert list(ordered.verdicts["d1"].keys())[3] == ("p001", 0)
    assert STATUSES[ordered.verdicts["d1"].status[3]] == "empty_output"


# Configurations: exactly what takes effect and differs is named


def paths(*overrides: str, datasets: tuple[str, ...] = ("one", "two")) -> dict[str, list[str]]:
    differences = compare_configs(Config(), load_config(None, overrides), datasets)
    return {
        str(role): [leaf.path for leaf in leaves] for role, leaves in differences.items() if leaves
    }


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
