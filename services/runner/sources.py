"""Sources of a run's completions: a generator, or a file of recorded completions."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.runner.sampling import sampling_fields
from services.runner.verl_responses import read_responses
from shared.completions import RecordedCompletion, evalplus_id, read_completions
from shared.config import Config
from shared.errors import DataError
from shared.ledger.packing import pack, unpack
from shared.prompts import chat_messages
from shared.schemas import Generation, Problem, SampleId, sha256, without_surrogates

if TYPE_CHECKING:
    from services.runner.client import GeneratorClient

# Completions that are yielded together at most, so that they are stored in one transaction.
_AT_ONCE = 32
# Seconds for which further completions are awaited, which then share a transaction and a job.
_GATHER = 0.005


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


class RecordedSource(Mapping[SampleId, RecordedCompletion]):
    """Recorded completions by sample, and a source of them.

    They are compressed in memory, with lone surrogates replaced.
    """

    def __init__(self, completions: Iterable[tuple[SampleId, RecordedCompletion]] = ()) -> None:
        self._packed: dict[SampleId, bytes] = {}
        self._hashes: dict[SampleId, str] = {}
        for sample, recorded in completions:
            self.add(sample, recorded)

    def add(self, sample: SampleId, recorded: RecordedCompletion) -> None:
        """Add a completion; the sample must not have one."""
        if (completion := without_surrogates(recorded.completion)) != recorded.completion:
            recorded = recorded.model_copy(update={"completion": completion})
        self._packed[sample] = pack(recorded.model_dump_json(exclude_defaults=True))
        self._hashes[sample] = sha256(completion)

    def __getitem__(self, sample: SampleId) -> RecordedCompletion:
        return RecordedCompletion.model_validate_json(unpack(self._packed[sample]))

    def __contains__(self, sample: object) -> bool:
        return sample in self._packed

    def __iter__(self) -> Iterator[SampleId]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def hashes(self) -> Mapping[SampleId, str]:
        """SHA-256 of every completion."""
        return self._hashes

    async def __call__(self, samples: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        for start in range(0, len(samples), _AT_ONCE):
            yield [self._generation(sample) for sample in samples[start : start + _AT_ONCE]]

    def _generation(self, sample: SampleId) -> Generation:
        fields = self[sample].model_dump(exclude={"dataset", "problem_id", "sample_index"})
        return Generation(
            dataset=sample.dataset,
            problem_id=sample.problem_id,
            sample_index=sample.sample_index,
            completion_sha256=self._hashes[sample],
            replica="recorded",
            requests=0,
            **fields,
        )


# Files of recorded completions


@dataclass(frozen=True, slots=True)
class MatchedCompletions:
    """Recorded completions by sample.

    ``unknown``: problem ids of completions without a problem. ``missing``: ids of problems without
    a completion.
    """

    by_sample: RecordedSource
    unknown: list[str]
    missing: list[str]


def match_completions(
    path: str, problems: Sequence[Problem], config: Config | None = None
) -> MatchedCompletions:
    """Read a completions file, JSON lines or verl's parquet, and find each completion's problem.

    ``config`` has the templates by which verl's table may have made prompts of the problems.

    Raises:
        DataError: The file cannot be used, has two completions of one sample, does not name the
            data set of a problem id that occurs in several, or matches no problem at all.
    """
    datasets: dict[str, list[str]] = {}
    for problem in problems:
        datasets.setdefault(problem.problem_id, []).append(problem.dataset)
    ids = {evalplus_id(problem_id): problem_id for problem_id in datasets}
    by_sample = RecordedSource()
    unknown: list[str] = []
    table = path.endswith(".parquet")
    for recorded in read_responses(path, problems, config) if table else read_completions(path):
        problem_id = recorded.problem_id
        if problem_id not in datasets:
            problem_id = ids.get(problem_id, problem_id)
        dataset = _dataset_of(recorded, datasets.get(problem_id, []), path)
        if dataset is None:
            unknown.append(problem_id)
            continue
        sample = SampleId(dataset, problem_id, recorded.sample_index)
        if sample in by_sample:
            raise DataError(
                f"{path}: two completions for {sample.key}; give them different sample_index"
            )
        by_sample.add(sample, recorded)
    if not by_sample:
        raise DataError(
            f"{path}: none of its {len(unknown)} completions belongs to a problem of the data; "
            "compare problem_id and dataset of both"
        )
    answered = {(sample.dataset, sample.problem_id) for sample in by_sample}
    missing = [p.problem_id for p in problems if (p.dataset, p.problem_id) not in answered]
    return MatchedCompletions(by_sample, unknown, missing)


def _dataset_of(recorded: RecordedCompletion, candidates: list[str], path: str) -> str | None:
    if recorded.dataset is not None:
        return recorded.dataset if recorded.dataset in candidates else None
    if len(candidates) > 1:
        raise DataError(
            f"{path}: problem {recorded.problem_id!r} is in several data sets "
            f"({', '.join(candidates)}); add the field dataset to the completion"
        )
    return candidates[0] if candidates else None


def sample_indices(samples: Iterable[SampleId]) -> dict[tuple[str, str], list[int]]:
    """Sample indices by data set and problem, sorted."""
    indices: dict[tuple[str, str], list[int]] = {}
    for sample in sorted(samples):
        indices.setdefault((sample.dataset, sample.problem_id), []).append(sample.sample_index)
    return indices
