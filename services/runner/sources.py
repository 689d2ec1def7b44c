"""A generator as the source of a run's completions: requests with a seed per sample."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from shared.config import Config
from shared.prompts import chat_messages
from shared.schemas import Generation, Problem, SampleId

if TYPE_CHECKING:
    from services.runner.client import GeneratorClient

# Completions that are yielded together at most, so that they are stored in one transaction.
_AT_ONCE = 32
# Seconds for which further completions are awaited, which then share a transaction and a job.
_GATHER = 0.005
_SEEDS = 2**31  # every engine accepts this range
_STRIDE = 0x9E3779B1


class GeneratorSource:
    """Requests completions from a generator, and yields them when they are finished."""

    def __init__(
        self, client: "GeneratorClient", config: Config, problems: Sequence[Problem], run: str
    ) -> None:
        self._client = client
        self._config = config
        self._problems = {(p.dataset, p.problem_id): p for p in problems}
        self._run = run

    async def __call__(self, samples: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        pending = iter(samples)
        # Bounded, so that a run that waits for its judges gets no further answers.
        finished: asyncio.Queue[Generation] = asyncio.Queue(_AT_ONCE)

        async def work() -> None:
            for sample in pending:
                await finished.put(await self._generate(sample))

        # One worker per request that may be in flight, because a task per sample would not scale to
        # large runs. The client admits fewer requests if the servers are overloaded.
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._config.generation.concurrency, len(samples))):
                    group.create_task(work())
                left = len(samples)
                while left:
                    batch = [await finished.get()]
                    await asyncio.sleep(_GATHER)
                    while len(batch) < _AT_ONCE and not finished.empty():
                        batch.append(finished.get_nowait())
                    left -= len(batch)
                    yield batch
        except* GeneratorExit:
            pass  # closed by a consumer that failed, and whose error must not be replaced

    async def _generate(self, sample: SampleId) -> Generation:
        messages = chat_messages(self._problems[sample.dataset, sample.problem_id], self._config)
        fields = sampling_fields(self._config, sample)
        return await self._client.generate(sample, self._run, messages, fields)


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
