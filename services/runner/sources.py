"""Sources of a run's completions: a generator, or recorded completions.

The generator gets requests with a seed per sample. Recorded completions are JSON lines, or a table
of verl: its ``main_generation_server`` adds the column ``responses`` to those of the prompts that
it read. Source of the layout: verl 0.9.1, verl/trainer/main_generation_server.py.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from services.runner.run import Source
from shared.completions import RecordedCompletion, evalplus_id, read_completions
from shared.config import Config
from shared.datasets import canonicalize, ground_truth, parquet_rows, record_fields, row_name
from shared.errors import DataError, data_error
from shared.prompts import chat_messages
from shared.reference import ProblemReference, is_reference, problem_digest
from shared.schemas import Generation, Problem, SampleId, sha256, without_surrogates
from shared.text import pack, unpack

if TYPE_CHECKING:
    from services.runner.client import GeneratorClient

# Completions that are yielded together at most, so that they are stored in one transaction.
_AT_ONCE = 32
# Seconds for which further completions are awaited, which then share a transaction and a job.
_GATHER = 0.005
_SEEDS = 2**31  # every engine accepts this range
_STRIDE = 0x9E3779B1


def generator_source(
    client: "GeneratorClient", config: Config, problems: Sequence[Problem], run: str
) -> Source:
    """A source that requests completions from a generator, and yields each when it is finished."""
    by_name = {(problem.dataset, problem.problem_id): problem for problem in problems}

    async def source(samples: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        pending = iter(samples)
        # Bounded, so that a run that waits for its judges gets no further answers.
        finished: asyncio.Queue[Generation] = asyncio.Queue(_AT_ONCE)

        async def work() -> None:
            for sample in pending:
                problem = by_name[sample.dataset, sample.problem_id]
                messages, fields = chat_messages(problem, config), sampling_fields(config, sample)
                await finished.put(await client.generate(sample, run, messages, fields))

        # One worker per request that may be in flight, because a task per sample would not scale to
        # large runs. The client admits fewer requests if the servers are overloaded.
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(config.generation.concurrency, len(samples))):
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

    return source


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


# Recorded completions


class RecordedSource:
    """A source of recorded completions, which are compressed in memory.

    ``hashes`` has the SHA-256 of every completion, ``unknown`` the problem ids of completions
    without a problem, ``missing`` the ids of problems without a completion.
    """

    def __init__(self) -> None:
        self.hashes: dict[SampleId, str] = {}
        self.unknown: list[str] = []
        self.missing: list[str] = []
        self._packed: dict[SampleId, bytes] = {}

    def add(self, sample: SampleId, recorded: RecordedCompletion) -> None:
        """Add a completion; lone surrogates are replaced."""
        completion = without_surrogates(recorded.completion)
        self.hashes[sample] = sha256(completion)
        own = {"completion": completion, "completion_sha256": self.hashes[sample]}
        fields = recorded.model_dump() | asdict(sample) | own
        generation = Generation(**fields, replica="recorded", requests=0)
        self._packed[sample] = pack(generation.model_dump_json(exclude_defaults=True))

    def indices(self) -> dict[tuple[str, str], list[int]]:
        """Sample indices by data set and problem, sorted."""
        indices: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for sample in sorted(self.hashes):
            indices[sample.dataset, sample.problem_id].append(sample.sample_index)
        return dict(indices)

    def completion(self, sample: SampleId) -> Generation:
        """The completion of a sample."""
        return Generation.model_validate_json(unpack(self._packed[sample]))

    async def __call__(self, samples: list[SampleId]) -> AsyncGenerator[list[Generation]]:
        for start in range(0, len(samples), _AT_ONCE):
            yield [self.completion(sample) for sample in samples[start : start + _AT_ONCE]]


def match_completions(
    path: str, problems: Sequence[Problem], config: Config | None = None
) -> RecordedSource:
    """Read a completions file, JSON lines or verl's parquet, and find each completion's problem.

    ``config`` has the templates by which verl's table may have made prompts of the problems.

    Raises:
        DataError: The file cannot be used, has two completions of one sample, does not name the
            data set of a problem id that occurs in several, or matches no problem at all.
    """
    datasets: defaultdict[str, list[str]] = defaultdict(list)
    for problem in problems:
        datasets[problem.problem_id].append(problem.dataset)
    ids = {evalplus_id(problem_id): problem_id for problem_id in datasets}
    source = RecordedSource()
    table = path.endswith(".parquet")
    for recorded in _read_table(path, problems, config) if table else read_completions(path):
        problem_id = recorded.problem_id
        if problem_id not in datasets:
            problem_id = ids.get(problem_id, problem_id)
        candidates = [n for n in datasets.get(problem_id, ()) if recorded.dataset in (None, n)]
        if not candidates:
            source.unknown.append(problem_id)
            continue
        if len(candidates) > 1:
            raise DataError(
                f"{path}: problem {problem_id!r} is in several data sets "
                f"({', '.join(candidates)}); add the field dataset to the completion"
            )
        sample = SampleId(candidates[0], problem_id, recorded.sample_index)
        if sample in source.hashes:
            raise DataError(
                f"{path}: two completions for {sample.key}; give them different sample_index"
            )
        source.add(sample, recorded)
    if not source.hashes:
        raise DataError(
            f"{path}: none of its {len(source.unknown)} completions belongs to a problem of the "
            "data; compare problem_id and dataset of both"
        )
    answered = {(sample.dataset, sample.problem_id) for sample in source.hashes}
    source.missing = [p.problem_id for p in problems if (p.dataset, p.problem_id) not in answered]
    return source


# Tables of verl

_RESPONSES = "responses"
_COLUMNS = (
    *("data_source", "reward_model", "extra_info", "prompt"),
    *("dataset", "problem_id", "task_id"),
)
_NAMELESS = (
    "names no problem: neither reward_model.ground_truth nor extra_info has a reference, there is "
    "no problem_id, and no problem of the data has its prompt; generate from a file of plumb data "
    "export"
)


def has_tests(path: str) -> bool:
    """Whether a file is a table with tests, and not with references to those of another file.

    Raises:
        DataError: It cannot be read.
    """
    if not path.endswith(".parquet"):
        return False
    rows = parquet_rows(path, (), ("ground_truth", "reward_model"))
    tests = ground_truth(next(rows, (1, {}))[1])
    return tests is not None and not is_reference(tests)


def _read_table(
    path: str, problems: Sequence[Problem], config: Config | None
) -> Iterator[RecordedCompletion]:
    """Read the responses of a parquet file: one or n per row, as a text or a list of texts.

    A row names its problem by the reference in ``reward_model.ground_truth`` or in ``extra_info``,
    else by ``problem_id`` (with ``dataset``, or ``data_source`` where that is a data set) in
    ``extra_info`` or in columns, else by its prompt, as text or messages. Responses are numbered
    from 0 within each problem, or by ``extra_info.sample_indices``. A row with an empty list or
    null has no response; a null in a list is an empty one. A problem that has changed since its
    response was made is an error.
    """
    by_name = {(problem.dataset, problem.problem_id): problem for problem in problems}
    datasets = {problem.dataset for problem in problems}
    prompts = cache(lambda: _by_prompt(problems, config))
    next_index: defaultdict[tuple[str | None, str], Iterator[int]] = defaultdict(count)
    empty = True
    for number, row in parquet_rows(path, (_RESPONSES,), _COLUMNS):
        place = f"{path}: row {number}"
        extra = record_fields(row.get("extra_info"))
        try:
            responses = _texts(row[_RESPONSES])
            name, digest = _name(row, extra, datasets)
            name = name or _of_prompt(row, prompts(), row_name(path, number, row))
        except ValueError as error:
            raise data_error(place, str(error)) from None
        problem = by_name.get((name[0] or "", name[1]))
        if digest and problem and digest != problem_digest(problem):
            cause = f"{name[0]}/{name[1]} has changed since these responses were made"
            raise data_error(place, f"{cause}; export the data and generate again")
        indices = extra.get("sample_indices")
        if not (isinstance(indices, list) and len(indices) == len(responses)):
            indices = next_index[name]
        for response, index in zip(responses, indices, strict=False):
            empty = False
            named = {"dataset": name[0], "problem_id": name[1], "sample_index": index}
            yield RecordedCompletion.model_validate({**named, "completion": response})
    if empty:
        raise data_error(path, f"no row has a response in {_RESPONSES!r}; generate them first")


def _texts(value: object) -> list[str]:
    """One response, or a list of n; a response without content is empty, null is no response."""
    texts = value if isinstance(value, list) else [] if value is None else [value]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise ValueError(f"{_RESPONSES} is neither a text nor a list of texts")
    return [str(text or "") for text in texts]


def _name(
    row: Mapping[str, object], extra: Mapping[str, object], datasets: set[str]
) -> tuple[tuple[str | None, str] | None, str]:
    """Data set, if there is one, and id of the problem that a row names; its digest, or empty."""
    truth = record_fields(row.get("reward_model")).get("ground_truth")
    for text in (truth, extra.get("reference")):
        if isinstance(text, str) and is_reference(text):
            reference = ProblemReference.parse(text)
            return (reference.dataset, reference.problem_id), reference.digest
    source = row.get("data_source")
    for fields in (extra, row):
        problem_id = fields.get("problem_id") or fields.get("task_id")
        if isinstance(problem_id, str) and problem_id:
            dataset = fields.get("dataset") or (source if source in datasets else None)
            return (dataset if isinstance(dataset, str) else None, problem_id), ""
    return None, ""


def _by_prompt(problems: Sequence[Problem], config: Config | None) -> dict[str, list[Problem]]:
    """The problems by their prompt, bare and in its template."""
    prompts: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        templated = [chat_messages(problem, config)[-1]["content"]] if config else []
        for form in {canonicalize(text) for text in (problem.prompt, *templated)}:
            prompts[form].append(problem)
    return prompts


def _of_prompt(
    row: Mapping[str, object], prompts: Mapping[str, list[Problem]], name: tuple[str, str]
) -> tuple[str, str]:
    """Data set and id of the problem that has a row's prompt, a text or the last user message.

    Where several have it, it is the one that is named like the row: the table is the data set.
    """
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        messages = map(record_fields, reversed(prompt))
        prompt = next((m.get("content") for m in messages if m.get("role") == "user"), None)
    question = canonicalize(prompt) if isinstance(prompt, str) else ""
    same = [(p.dataset, p.problem_id) for p in prompts.get(question, ())]
    if not question or not same:
        raise ValueError(_NAMELESS)
    if len(same) > 1 and name not in same:
        names = " and ".join(map("/".join, same[:2]))
        raise ValueError(f"names no problem, and its prompt is that of {names}; add problem_id")
    return name if len(same) > 1 else same[0]
