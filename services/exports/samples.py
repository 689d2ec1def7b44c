"""Samples of a finished run for export (answer, verdict, prompt), and the names of its files."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from shared.datasets import read_datasets
from shared.errors import DataError
from shared.finished_run import FinishedRun
from shared.outlines import ProblemOutline, entry_point, prelude, read_outlines
from shared.plan import make_plan
from shared.run_record import RunRecord
from shared.schemas import Generation, SampleId, Verdict

_SLOT = "{prompt}"


@dataclass(frozen=True, slots=True)
class Question:
    """The prompt of a problem, without its tests, which may be large.

    ``prelude`` is the source text that ran before the answer.
    """

    prompt: str
    entry_point: str | None = None
    prelude: str = ""


@dataclass(frozen=True)
class Sample:
    """One sample; ``question`` is None if neither the run nor its data sets have the prompt."""

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
        run: The run's folder and record.
        datasets: The samples by data set, in the run's order.
        notes: Warnings for the user, such as missing prompts.
    """

    run: FinishedRun
    datasets: Mapping[str, Sequence[Sample]]
    notes: list[str] = field(default_factory=list)

    @property
    def record(self) -> RunRecord:
        return self.run.record

    @property
    def model(self) -> str:
        """Name of the served model; empty if it is not known."""
        return self.record.served_model or ""

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        """Rebuild the chat messages sent to the model, as far as the record has the template."""
        prompt = (self.record.prompts or {}).get(sample.generation.dataset)
        template = prompt.template if prompt else _SLOT
        content = template.replace(_SLOT, sample.prompt) if sample.question else ""
        user = {"role": "user", "content": content}
        system = self.record.system_prompt
        return [{"role": "system", "content": system.text}, user] if system else [user]


def load_samples(run: FinishedRun, data: Sequence[str] = ()) -> RunSamples:
    """Join a run's answers and verdicts with the prompts from its data sets.

    Args:
        run: The run.
        data: Parquet files or folders of the data sets. If empty, the paths in ``run.json`` are
            used; if those no longer exist, the prompts are those that the run itself recorded.
            Runs of earlier versions recorded none: then a note says that there are no prompts.

    Raises:
        DataError: ``data`` cannot be read or differs from the run's data, or the run has no
            verdicts.
        OutputError: The run's files cannot be read.
    """
    record = run.record
    verdicts = run.verdicts_by_sample()
    notes: list[str] = []
    paths = data or record.data_files or record.config.data.eval_files
    try:
        questions = _questions(record, paths, set(verdicts))
    except DataError as error:
        if data:
            raise
        questions = recorded_questions(read_outlines(run.folder))
        if any((one.dataset, one.problem_id) not in questions for one in verdicts):
            notes.append(f"no prompts: {error} (or name the data with --data)")
    samples = join_samples(run, verdicts, questions)
    if not samples.datasets:
        raise DataError(f"{run.folder.url}: the run has no verdicts; there is nothing to export")
    return replace(samples, notes=[*notes, *run.skipped])


def recorded_questions(outlines: Iterable[ProblemOutline]) -> dict[tuple[str, str], Question]:
    """The questions that a run recorded, by data set and problem."""
    return {
        (one.dataset, one.problem_id): Question(one.prompt, one.entry_point, one.prelude)
        for one in outlines
    }


def join_samples(
    run: FinishedRun,
    verdicts: Mapping[SampleId, Verdict],
    questions: Mapping[tuple[str, str], Question],
) -> RunSamples:
    """Join a run's verdicts with its answers, and with questions by data set and problem.

    Raises:
        OutputError: The run's answers cannot be read.
    """
    generations = {generation.sample: generation for generation in run.generations()}
    datasets: dict[str, list[Sample]] = {}
    for sample, verdict in verdicts.items():
        question = questions.get((sample.dataset, sample.problem_id))
        generation = generations.get(sample) or Generation.missing(
            verdict.sample, verdict.detail or "not generated"
        )
        datasets.setdefault(sample.dataset, []).append(Sample(generation, verdict, question))
    return RunSamples(run, datasets)


def _questions(
    run: RunRecord, paths: Sequence[str], samples: set[SampleId]
) -> dict[tuple[str, str], Question]:
    """Read prompts by data set and problem; the data must have the same hashes as the run's."""
    ids = {(sample.dataset, sample.problem_id) for sample in samples}
    problems = read_datasets(paths, run.config.data.prompt_key)
    known = [problem for problem in problems if (problem.dataset, problem.problem_id) in ids]
    found = {dataset.name: dataset.sha256 for dataset in make_plan(known, lambda _p: ()).datasets}
    for dataset in run.datasets:
        if found.get(dataset.dataset) != dataset.sha256:
            cause = f"{dataset.dataset} is not the data set that the run was made with"
            raise DataError(f"{', '.join(paths)}: {cause}; name that one")
    return {
        (problem.dataset, problem.problem_id): Question(
            problem.prompt, entry_point(problem), prelude(problem)
        )
        for problem in known
    }


# Names of files and tasks, which the readers of other projects parse


def start_time(samples: RunSamples) -> str:
    """Format the run's start in UTC for a file name: ``2026-01-31T12-00-00``."""
    started = samples.record.started_at or 0.0
    return datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H-%M-%S")


def task_name(dataset: str) -> str:
    """Convert a data set's name to letters, digits and ``_``."""
    return re.sub(r"\W", "_", dataset, flags=re.ASCII)


def file_part(dataset: str) -> str:
    """``task_name`` with ``-`` for ``_``, which separates the parts of a file name."""
    return task_name(dataset).replace("_", "-")
