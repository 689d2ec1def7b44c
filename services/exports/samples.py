"""Samples of a finished run for export: answer, verdict and problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared import artifacts
from shared.errors import OutputError
from shared.finished_run import FinishedRun
from shared.outlines import ProblemOutline, read_outlines
from shared.run_record import RunRecord
from shared.schemas import Generation, Verdict


@dataclass(frozen=True)
class Sample:
    """One sample."""

    generation: Generation
    verdict: Verdict
    problem: ProblemOutline


@dataclass(frozen=True)
class RunSamples:
    """A finished run for export.

    Attributes:
        run: The run's folder and record.
        datasets: The samples by data set, in the run's order.
        notes: Warnings for the user, such as torn last lines.
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


def load_samples(run: FinishedRun) -> RunSamples:
    """Join a run's verdicts with its answers and problems.

    Raises:
        OutputError: The run's files cannot be read, or a verdict is about an unknown problem.
    """
    problems = {
        (outline.dataset, outline.problem_id): outline for outline in read_outlines(run.folder)
    }
    datasets: dict[str, list[Sample]] = {}
    for verdict, generation in run.judged_samples():
        sample = verdict.sample
        problem = problems.get((sample.dataset, sample.problem_id))
        if problem is None:
            cause = f"no problem {sample.dataset}/{sample.problem_id}; put the file back"
            raise OutputError(f"{run.folder.shown}/{artifacts.PROBLEMS}: {cause}")
        generation = generation or Generation.missing(sample, verdict.detail or "not generated")
        datasets.setdefault(sample.dataset, []).append(Sample(generation, verdict, problem))
    return RunSamples(run, datasets, [*run.skipped])
