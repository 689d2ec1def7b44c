"""Sampling parameters of a request, with a seed per sample."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.config import Config
from shared.schemas import SampleId

_SEEDS = 2**31  # every engine accepts this range
_STRIDE = 0x9E3779B1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters of a request. A ``top_k`` below 1 means no limit and is not sent.

    ``extra_body`` are further fields of the body, or other values of those here; None leaves a
    field out.
    """

    temperature: float
    top_p: float
    max_tokens: int
    seed: int | None = None
    top_k: int = -1
    stop: tuple[str, ...] = ()
    max_completion_tokens: bool = False
    extra_body: Mapping[str, object] = field(default_factory=dict)


def sampling_params(config: Config, sample: SampleId) -> SamplingParams:
    """The config's parameters and the sample's seed; no seed at temperature 0, which is greedy."""
    rollout, generation = config.actor_rollout_ref.rollout, config.generation
    seed = None
    if rollout.temperature > 0:
        base = config.run.seed if generation.seed is None else generation.seed
        seed = sample_seed(base, sample)
    extra: dict[str, object] = {}
    if template := config.data.apply_chat_template_kwargs:
        extra["chat_template_kwargs"] = template
    return SamplingParams(
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        max_tokens=rollout.response_length,
        seed=seed,
        top_k=rollout.top_k,
        stop=tuple(generation.stop),
        max_completion_tokens=generation.max_completion_tokens,
        extra_body=extra | generation.extra_body,
    )


def sample_seed(base: int, sample: SampleId) -> int:
    """A seed of 31 bits, unrelated between problems and unique among the samples of a problem."""
    problem = SampleId(sample.dataset, sample.problem_id).key
    digest = hashlib.sha256(f"{base}\n{problem}".encode()).digest()
    # The stride is odd, so its multiples take every value below 2**31 once.
    return (int.from_bytes(digest[:4]) + _STRIDE * sample.sample_index) % _SEEDS
