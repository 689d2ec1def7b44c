"""Sampling parameters of a request, with a seed per sample."""

import hashlib

from shared.config import Config
from shared.schemas import SampleId

_SEEDS = 2**31  # every engine accepts this range
_STRIDE = 0x9E3779B1


def sampling_fields(config: Config, sample: SampleId) -> dict[str, object]:
    """Fields of the body of a sample's request, but for model and messages.

    There is no seed at temperature 0, which is greedy. ``generation.extra_body`` adds fields,
    replaces their values, or leaves those out that it sets to null.
    """
    rollout, generation = config.actor_rollout_ref.rollout, config.generation
    keep_stop = True if generation.stop else None
    limit = "max_completion_tokens" if generation.max_completion_tokens else "max_tokens"
    base = config.run.seed if generation.seed is None else generation.seed
    fields: dict[str, object] = {
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        limit: rollout.response_length,
        "seed": sample_seed(base, sample) if rollout.temperature > 0 else None,
        "top_k": rollout.top_k if rollout.top_k > 0 else None,
        "stop": list(generation.stop) or None,
        # vLLM's name and SGLang's for keeping the stop string in the answer.
        "include_stop_str_in_output": keep_stop,
        "no_stop_trim": keep_stop,
        "chat_template_kwargs": config.data.apply_chat_template_kwargs or None,
        **generation.extra_body,
    }
    return {name: value for name, value in fields.items() if value is not None}


def sample_seed(base: int, sample: SampleId) -> int:
    """A seed of 31 bits, unrelated between problems and unique among the samples of a problem."""
    problem = SampleId(sample.dataset, sample.problem_id).key
    digest = hashlib.sha256(f"{base}\n{problem}".encode()).digest()
    # The stride is odd, so its multiples take every value below 2**31 once.
    return (int.from_bytes(digest[:4]) + _STRIDE * sample.sample_index) % _SEEDS
