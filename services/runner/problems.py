"""Problems of a run: read from data files, checked against their lock, filtered by quality."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from shared.config import DataConfig
from shared.datasets import parquet_files, read_datasets
from shared.errors import DataError
from shared.manifests import differences, load_lock
from shared.run_record import DataLockCheck, Provenance
from shared.schemas import Problem, quality_findings


@dataclass(frozen=True, slots=True)
class LoadedProblems:
    """Problems with their provenance for run.json and notes for the terminal."""

    problems: list[Problem]
    provenance: Provenance
    notes: tuple[str, ...]


def load_problems(
    config: DataConfig, paths: Sequence[str], *, allow_unlocked: bool
) -> LoadedProblems:
    """Read the problems of data files and folders.

    Args:
        config: Lock file, prompt column and quality filter.
        paths: Parquet files, or folders of them.
        allow_unlocked: Record differences from the lock instead of refusing them.

    Raises:
        DataError: A file or row cannot be used, a file differs from the lock, or the filter removes
            all problems of a data set.
    """
    locked = _check_lock(config.lock, paths, allow_unlocked=allow_unlocked)
    notes = [f"warning: {difference}" for difference in locked.differences]
    problems: list[Problem] = []
    # Counts of the excluded problems by data set and finding
    left_out: dict[str, Counter[str]] = {}
    for problem in read_datasets(paths, config.prompt_key):
        if findings := quality_findings(problem.quality) & set(config.exclude_quality):
            counts = left_out.setdefault(problem.dataset, Counter())
            counts.update(["problems", *sorted(findings)])
        else:
            problems.append(problem)
    if emptied := left_out.keys() - {problem.dataset for problem in problems}:
        raise DataError(
            f"data.exclude_quality leaves nothing of {min(emptied)}; exclude fewer findings, or "
            "remove the data set from the run"
        )
    for dataset, counts in left_out.items():
        reasons = [f"{name} {count}" for name, count in counts.items() if name != "problems"]
        notes.append(f"{dataset}: {counts['problems']} problems left out ({', '.join(reasons)})")
    provenance = Provenance(
        data_files=list(paths),
        data_lock=locked,
        left_out={dataset: dict(counts) for dataset, counts in left_out.items()},
    )
    return LoadedProblems(problems, provenance, tuple(notes))


def _check_lock(path: str | None, paths: Sequence[str], *, allow_unlocked: bool) -> DataLockCheck:
    if path is None:
        return DataLockCheck()
    version = None
    try:
        lock = load_lock(path)
        version = lock.canonical_version
        changes = differences(lock, [file for name in paths for file in parquet_files(name)])
    except DataError as error:
        changes = [str(error)]
    if changes and not allow_unlocked:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise DataError(
            f"data.lock {path}: {changes[0]}{more}; prepare the data again (plumb data prepare), "
            "or record the difference with --allow-unlocked"
        )
    return DataLockCheck(path=path, canonical_version=version, differences=changes)
