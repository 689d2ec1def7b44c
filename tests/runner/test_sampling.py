"""Sampling parameters with a seed per sample."""

from hypothesis import given
from hypothesis import strategies as st

from services.runner.sampling import sample_seed, sampling_params
from shared.config import load_config
from shared.schemas import SampleId

SAMPLE = SampleId("d", "p", 3)
samples = st.builds(SampleId, st.text(min_size=1), st.text(min_size=1), st.integers(0, 10**6))


def seed_of(*overrides: str, sample: SampleId = SAMPLE) -> int | None:
    warm = "actor_rollout_ref.rollout.temperature=0.7"
    return sampling_params(load_config(None, [warm, *overrides]), sample).seed


def test_parameters_come_from_the_config() -> None:
    rollout = "actor_rollout_ref.rollout"
    keys = [f"{rollout}.{key}" for key in ("temperature=0.5", "top_p=0.9", "top_k=7", "n=4")]
    overrides = [*keys, f"{rollout}.response_length=11", "generation.stop=[END]"]
    params = sampling_params(load_config(None, overrides), SAMPLE)
    assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.9, 7)
    assert (params.max_tokens, params.stop) == (11, ("END",))
    assert params.seed is not None


def test_at_temperature_0_there_is_no_seed() -> None:
    assert sampling_params(load_config(None, ["generation.seed=5"]), SAMPLE).seed is None


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
