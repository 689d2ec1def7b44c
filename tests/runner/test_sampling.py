"""Sampling parameters with a seed per sample."""

from hypothesis import given
from hypothesis import strategies as st

from services.runner.sources import sample_seed, sampling_fields
from shared.config import load_config
from shared.schemas import SampleId

SAMPLE = SampleId("d", "p", 3)
samples = st.builds(SampleId, st.text(min_size=1), st.text(min_size=1), st.integers(0, 10**6))


def seed_of(*overrides: str, sample: SampleId = SAMPLE) -> object:
    warm = "actor_rollout_ref.rollout.temperature=0.7"
    return sampling_fields(load_config(None, [warm, *overrides]), sample)["seed"]


def test_fields_come_from_the_config() -> None:
    rollout = "actor_rollout_ref.rollout"
    keys = [f"{rollout}.{key}" for key in ("temperature=0.5", "top_p=0.9", "top_k=7", "n=4")]
    overrides = [*keys, f"{rollout}.response_length=11", "generation.stop=[END]"]
    overrides += ["generation.extra_body={top_p: null, reasoning_effort: low}"]
    fields = sampling_fields(load_config(None, overrides), SAMPLE)
    assert fields == {
        "temperature": 0.5,
        "max_tokens": 11,
        "seed": sample_seed(0, SAMPLE),
        "top_k": 7,
        "stop": ["END"],
        "include_stop_str_in_output": True,
        "no_stop_trim": True,
        "reasoning_effort": "low",
    }
    overrides = ["generation.seed=5", "generation.max_completion_tokens=true"]
    greedy = sampling_fields(load_config(None, overrides), SAMPLE)
    assert set(greedy) == {"temperature", "top_p", "max_completion_tokens"}


def test_seeds_follow_from_the_runs_seed_or_the_generators() -> None:
    assert seed_of() == seed_of() == seed_of("run.seed=0") == seed_of("generation.seed=0")
    assert seed_of("run.seed=1") == seed_of("generation.seed=1") != seed_of()
    assert seed_of("run.seed=2", "generation.seed=1") == seed_of("run.seed=1")


def test_seeds_are_the_same_on_every_machine() -> None:
    assert sample_seed(0, SampleId("humaneval", "HumanEval/0", 0)) == 1262466307
    assert sample_seed(0, SampleId("humaneval", "HumanEval/0", 1)) == 1769418420


@given(st.integers(), samples, st.sets(st.integers(0, 2**31 - 1), min_size=2, max_size=50))
def test_no_two_samples_of_a_problem_share_a_seed(
    base: int, sample: SampleId, indices: set[int]
) -> None:
    seeds = {
        sample_seed(base, SampleId(sample.dataset, sample.problem_id, index)) for index in indices
    }
    assert len(seeds) == len(indices)
