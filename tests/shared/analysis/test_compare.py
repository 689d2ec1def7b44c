"""Protocol differences that make two runs incomparable."""

import pytest

from shared.analysis.compare import Unpaired, compare_runs, require_same_protocol
from shared.analysis.runs import read_runs
from shared.errors import DataError
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
    assert one.unpaired == Unpaired(only_first=1, only_second=0, api_error=0, changed=2)
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
