"""Completions that exist already: matched with problems, and what matches nothing counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.completions import RecordedCompletion, read_completions
from shared.errors import DataError
from shared.schemas import Problem, SampleId


@dataclass(frozen=True, slots=True)
class MatchedCompletions:
    """Completions by sample, and the ids of what has no counterpart."""

    by_sample: dict[SampleId, RecordedCompletion]
    unknown: list[str]
    missing: list[str]

    def indices(self) -> dict[tuple[str, str], list[int]]:
        """Sample indices by data set and problem."""
        found: dict[tuple[str, str], list[int]] = {}
        for sample in sorted(self.by_sample):
            found.setdefault((sample.dataset, sample.problem_id), []).append(sample.sample_index)
        return found


def match_completions(path: str, problems: Sequence[Problem]) -> MatchedCompletions:
    """Read a completions file and find the problem of each.

    Raises:
        DataError: The file cannot be used, names a sample twice, leaves the data set of a problem
            id open that several data sets have, or matches no problem at all.
    """
    datasets: dict[str, list[str]] = {}
    for problem in problems:
        datasets.setdefault(problem.problem_id, []).append(problem.dataset)
    by_sample: dict[SampleId, RecordedCompletion] = {}
    unknown: list[str] = []
    for recorded in read_completions(path):
        dataset = _dataset_of(recorded, datasets.get(recorded.problem_id, []), path)
        if dataset is None:
            unknown.append(recorded.problem_id)
            continue
        sample = SampleId(dataset, recorded.problem_id, recorded.sample_index)
        if sample in by_sample:
            raise DataError(
                f"{path}: two completions for {sample.key}; give them different sample_index"
            )
        by_sample[sample] = recorded
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
            f"({', '.join(candidates)}); name the one in the field dataset"
        )
    return candidates[0] if candidates else None
