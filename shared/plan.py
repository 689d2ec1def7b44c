"""Run plan: the data sets, problems and samples of a run, in the order of its artifacts."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict

from shared.schemas import Problem, SampleId


class PlannedDataset(BaseModel):
    """A data set of the run; ``sha256`` covers ids, prompts and tests of its problems in order.

    ``owed`` lists the problem id and sample index of every planned sample.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    sha256: str
    problems: int
    owed: list[tuple[str, int]]

    def each_sample(self) -> Iterator[SampleId]:
        """Yield the samples, made as they are asked for."""
        return (SampleId(self.name, problem_id, index) for problem_id, index in self.owed)


class RunPlan(BaseModel):
    """All samples of a run."""

    model_config = ConfigDict(frozen=True)

    datasets: list[PlannedDataset]

    def each_sample(self) -> Iterator[SampleId]:
        """Yield the samples, made as they are asked for: a plan may have a million."""
        return (sample for dataset in self.datasets for sample in dataset.each_sample())

    def samples(self) -> list[SampleId]:
        return list(self.each_sample())

    def reduced(self, problems: Collection[tuple[str, str]]) -> Self:
        """The samples of some problems, named by data set and id; ``sha256`` is still of all."""
        datasets = [
            one.model_copy(update={"owed": [s for s in one.owed if (one.name, s[0]) in problems]})
            for one in self.datasets
        ]
        return self.model_copy(update={"datasets": datasets})

    def fingerprint(self) -> str:
        """Hex SHA-256 over data and samples; equal for runs over the same samples."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def make_plan(
    problems: Sequence[Problem],
    indices: Callable[[Problem], Sequence[int]],
) -> RunPlan:
    """Plan the samples of problems, grouped by data set in the order of the problems.

    ``indices`` returns the sample indices of a problem.
    """
    by_dataset: dict[str, list[Problem]] = {}
    for problem in problems:
        by_dataset.setdefault(problem.dataset, []).append(problem)
    return RunPlan(datasets=[_planned(name, group, indices) for name, group in by_dataset.items()])


def _planned(
    name: str, problems: Sequence[Problem], indices: Callable[[Problem], Sequence[int]]
) -> PlannedDataset:
    digest = hashlib.sha256()
    for problem in problems:
        for part in (problem.problem_id, problem.prompt, problem.ground_truth):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return PlannedDataset(
        name=name,
        sha256=digest.hexdigest(),
        problems=len(problems),
        owed=[(problem.problem_id, index) for problem in problems for index in indices(problem)],
    )
