"""Protocol differences that make two runs incomparable."""

import pytest

from shared.analysis.compare import compare_runs, require_same_protocol
from shared.analysis.runs import read_runs
from shared.errors import DataError
from tests.shared.finished_runs import write_run

ROLLOUT = "config.actor_rollout_ref.rollout"
ONE = {"dataset": "one", "problems": 2, "samples": 2}
CHANGES = [
    (f"{ROLLOUT}.temperature", 0.8, "temperature is 0.0 in A and 0.8 in B"),
    (f"{ROLLOUT}.n", 4, "rollout.n is 1 in A and 4 in B"),
    (f"{ROLLOUT}.top_p", 0.9, "top_p is 1.0 in A and 0.9 in B"),
    (f"{ROLLOUT}.response_length", 512, "response_length is 2048 in A and 512 in B"),
    ("config.generation.stop", ["END"], 'generation.stop is [] in A and ["END"] in B'),
    ("config.data.system_prompt", "Hi", 'data.system_prompt is "" in A and "Hi" in B'),
    ("prompts.one.sha256", "bb", "the prompt template's SHA-256 of one is aa in A and bb in B"),
    ("prompts", None, "the prompt template's SHA-256 of one is aa in A and not recorded in B"),
    ("config.sandbox.timeout", 3.0, "sandbox.timeout is 10.0 in A and 3.0 in B"),
    ("config.sandbox.memory_limit_mb", 9, "sandbox.memory_limit_mb is 1024 in A and 9 in B"),
    ("config.judge.extraction", "first", 'judge.extraction is "last" in A and "first" in B'),
    ("config.judge.datasets", {"one": {"max_timeouts": 3}}, "max_timeouts is 4 in A and 3 in B"),
    ("config.judge.max_timeouts", None, "judge.max_timeouts is 4 in A and not set in B"),
    ("datasets", [{**ONE, "sha256": "zz"}], "the SHA-256 of one is hash-one in A and zz in B"),
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


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"checker": "lines"}, "is compute_score and exact in A and compute_score and lines in B"),
     ({"method": "batch"}, "is compute_score and exact in A and batch and exact in B")],
)  # fmt: skip
def test_another_method_or_checker_is_found(tmp_path, fields, said):
    first = write_run(tmp_path / "a", {"one": "+-"})
    second = write_run(tmp_path / "b", {"one": "+-"}, **fields)
    (warning,) = compare_runs(*read_runs([first, second])).warnings
    assert warning == f"method and checker of one p000 {said}"


def test_another_method_is_named_once_if_the_configurations_differ(tmp_path):
    first = write_run(tmp_path / "a", {"one": "+-"})
    change = {"config.judge.checker": "lines"}
    second = write_run(tmp_path / "b", {"one": "+-"}, change=change, checker="lines")
    (warning,) = compare_runs(*read_runs([first, second])).warnings
    assert warning == 'judge.checker is "tokens" in A and "lines" in B'


def test_an_empty_answer_is_judged_by_no_method(tmp_path):
    first = write_run(tmp_path / "a", {"one": "+e"})
    second = write_run(tmp_path / "b", {"one": "e+"})
    assert compare_runs(*read_runs([first, second])).warnings == []


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
