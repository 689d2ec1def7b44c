"""Where a run's completions come from: a generator, or a file of recorded ones."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from services.runner.client import GeneratorClient
from services.runner.prompts import chat_messages, sampling_params
from shared.completions import RecordedCompletion
from shared.config import Config
from shared.schemas import Generation, Problem, SampleId, sha256, without_surrogates


class GeneratorSource:
    """Asks a generator; completions come in the order in which they are done."""

    def __init__(
        self, client: GeneratorClient, config: Config, problems: Sequence[Problem], run: str
    ) -> None:
        self._client = client
        self._config = config
        self._problems = {(p.dataset, p.problem_id): p for p in problems}
        self._run = run

    async def __call__(self, owed: list[SampleId]) -> AsyncGenerator[Generation]:
        pending = iter(owed)
        done: asyncio.Queue[Generation] = asyncio.Queue()

        async def work() -> None:
            for sample in pending:
                await done.put(await self._generate(sample))

        # As many workers as requests may ever be in flight, so that a large run needs no task per
        # sample; the client lets as many of them go as the servers bear.
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._config.generation.concurrency, len(owed))):
                group.create_task(work())
            for _ in owed:
                yield await done.get()

    async def _generate(self, sample: SampleId) -> Generation:
        problem = self._problems[sample.dataset, sample.problem_id]
        messages = chat_messages(problem, self._config.data)
        params = sampling_params(self._config, sample)
        return await self._client.generate(sample, self._run, messages, params)


class RecordedSource:
    """Gives completions that exist already."""

    def __init__(self, completions: Mapping[SampleId, RecordedCompletion]) -> None:
        self._completions = completions

    def hashes(self) -> dict[SampleId, str]:
        """SHA-256 of every completion."""
        return {
            sample: sha256(without_surrogates(r.completion))
            for sample, r in self._completions.items()
        }

    async def __call__(self, owed: list[SampleId]) -> AsyncGenerator[Generation]:
        for sample in owed:
            recorded = self._completions[sample]
            completion = without_surrogates(recorded.completion)
            yield Generation(
                dataset=sample.dataset,
                problem_id=sample.problem_id,
                sample_index=sample.sample_index,
                completion=completion,
                completion_sha256=sha256(completion),
                finish_reason=recorded.finish_reason,
                prompt_tokens=recorded.prompt_tokens,
                output_tokens=recorded.output_tokens,
                gen_time=recorded.gen_time,
                replica="recorded",
                requests=0,
            )
