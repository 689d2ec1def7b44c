"""The samples of a finished run as every export takes them: answer, verdict, question."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shared.config import Config, validate_config
from shared.datasets import read_datasets
from shared.errors import ConfigError, DataError
from shared.finished_run import FinishedRun
from shared.plan import make_plan
from shared.schemas import Generation, Problem, SampleId, Verdict

_SLOT = "{prompt}"


@dataclass(frozen=True, slots=True)
class Question:
    """What is needed of a problem, without its tests, which may be large."""

    prompt: str
    entry_point: str | None = None


@dataclass(frozen=True)
class Sample:
    """One sample; ``question`` is None where the run's data sets are not at hand."""

    generation: Generation
    verdict: Verdict
    question: Question | None

    @property
    def prompt(self) -> str:
        return self.question.prompt if self.question else ""


@dataclass(frozen=True)
class RunSamples:
    """A finished run for export.

    Attributes:
        run: Where it is, and its ``run.json``.
        config: Its configuration.
        datasets: Its samples by data set, in the run's order.
        notes: What whoever exports ought to know.
    """

    run: FinishedRun
    config: Config
    datasets: Mapping[str, Sequence[Sample]]
    notes: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return str(self.run.run.get("model") or self.config.actor_rollout_ref.model.path)

    @property
    def complete(self) -> bool:
        return bool(self.run.run.get("complete"))

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        """The chat messages that were sent, as far as ``run.json`` knows the template."""
        prompts = self.run.run.get("prompts") or {}
        template = prompts.get(sample.generation.dataset, {}).get("template", _SLOT)
        system = (self.run.run.get("system_prompt") or {}).get("text")
        content = template.replace(_SLOT, sample.prompt) if sample.question else ""
        user = {"role": "user", "content": content}
        return [{"role": "system", "content": system}, user] if system else [user]


def load_samples(run: FinishedRun, data: Sequence[str] = ()) -> RunSamples:
    """Bring together a run's answers and verdicts, and the prompts from its data sets.

    Args:
        run: The run.
        data: Parquet files or folders of the data sets; none for those that the run names, which
            need not be there any more: the export has no prompts then, and a note says so.

    Raises:
        DataError: ``data`` cannot be read or is not what the run was made with, or an answer has no
            verdict.
        OutputError: The run's files cannot be read.
    """
    config = _config(run)
    generations = {generation.sample: generation for generation in run.generations()}
    verdicts = run.verdicts_by_sample()
    notes: list[str] = []
    paths = data or run.run.get("data_files") or config.data.eval_files
    try:
        questions = _questions(run, config, paths, set(verdicts))
    except DataError as error:
        if data:
            raise
        questions = {}
        notes.append(f"no prompts: {error} (or name the data with --data)")
    datasets: dict[str, list[Sample]] = {}
    for sample, verdict in verdicts.items():
        question = questions.get((sample.dataset, sample.problem_id))
        generation = generations.get(sample) or Generation.missing(
            verdict.sample, verdict.detail or "not generated"
        )
        datasets.setdefault(sample.dataset, []).append(Sample(generation, verdict, question))
    if not datasets:
        raise DataError(f"{run.folder.url}: a run without verdicts; there is nothing to export")
    return RunSamples(run, config, datasets, [*notes, *run.skipped])


def _config(run: FinishedRun) -> Config:
    try:
        return validate_config(run.run.get("config", {}))
    except ConfigError as error:
        cause = f"its config cannot be used ({error}); was it made by another version?"
        raise DataError(f"{run.folder.url}/run.json: {cause}") from None


def _questions(
    run: FinishedRun, config: Config, paths: Sequence[str], samples: set[SampleId]
) -> dict[tuple[str, str], Question]:
    """By data set and problem; the data has to have the hashes that the run had."""
    ids = {(sample.dataset, sample.problem_id) for sample in samples}
    problems = read_datasets(paths, config.data.prompt_key)
    known = [problem for problem in problems if (problem.dataset, problem.problem_id) in ids]
    found = {dataset.name: dataset.sha256 for dataset in make_plan(known, lambda _p: ()).datasets}
    for dataset in run.datasets:
        if found.get(dataset["dataset"]) != dataset["sha256"]:
            cause = f"{dataset['dataset']} is not the data set that the run was made with"
            raise DataError(f"{', '.join(paths)}: {cause}; name that one")
    return {(problem.dataset, problem.problem_id): _question(problem) for problem in known}


def _question(problem: Problem) -> Question:
    return Question(problem.prompt, getattr(problem.tests, "entry_point", None))


def by_problem(samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    """Yield the samples of one problem after the other, in the order in which they come first."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.generation.problem_id, []).append(sample)
    yield from groups.values()
