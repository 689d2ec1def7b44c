"""Problems of a run, and the checks of them before it writes anything."""

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from shared.config import Config, DataConfig, JudgeConfig
from shared.datasets import parquet_files, read_datasets
from shared.errors import ConfigError, DataError
from shared.function_plan import fault_of, plan_of
from shared.harness.languages import LANGUAGES
from shared.manifests import differences, load_lock
from shared.run_record import DataLockCheck, Provenance
from shared.schemas import (
    HumanEvalTests,
    MbppTests,
    Problem,
    ProgramTests,
    SandboxFusionTests,
    StdioTests,
    quality_findings,
)


@dataclass(frozen=True, slots=True)
class LoadedProblems:
    """Problems with their provenance for run.json and notes for the terminal."""

    problems: list[Problem]
    provenance: Provenance
    notes: tuple[str, ...]

    def limited(self, limit: int | None) -> list[Problem]:
        """The first ``limit`` problems of each data set."""
        numbers: defaultdict[str, Iterator[int]] = defaultdict(count)
        return [
            problem
            for problem in self.problems
            if limit is None or next(numbers[problem.dataset]) < limit
        ]


def load_problems(
    config: DataConfig, paths: Sequence[str], *, allow_unlocked: bool
) -> LoadedProblems:
    """Read the problems of parquet files, or folders of them, by the config's lock and filter.

    With ``allow_unlocked``, differences from the lock are recorded instead of refused.

    Raises:
        DataError: A file or row cannot be used, a file differs from the lock, or the filter removes
            all problems of a data set.
    """
    locked = _check_lock(config.lock, paths, allow_unlocked=allow_unlocked)
    notes = [f"warning: {difference}" for difference in locked.differences]
    problems: list[Problem] = []
    left_out: defaultdict[str, Counter[str]] = defaultdict(Counter)  # counts of findings
    for problem in read_datasets(paths, config.prompt_key):
        if findings := quality_findings(problem.quality) & set(config.exclude_quality):
            left_out[problem.dataset].update(["problems", *sorted(findings)])
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


def check_judging(config: Config, problems: Sequence[Problem]) -> None:
    """Check that the config's judging method and language fit each problem.

    Raises:
        ConfigError: ``judge.datasets`` names a data set that the run does not have.
        DataError: A problem's tests cannot be judged with the method or language, or cannot run
            whatever the answer is.
    """
    settings = {p.dataset: config.judge.for_dataset(p.dataset) for p in problems}
    for name in config.judge.datasets:
        if name not in settings:
            near = difflib.get_close_matches(name, settings, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"judge.datasets names {name!r}, which is not in this run{hint}")
    for problem in problems:
        if reason := _mismatch(problem, settings[problem.dataset]):
            raise DataError(f"{_name_of(problem)}: {reason}")
        if not config.judge.allow_test_errors and (reason := fault_of(problem.tests)):
            raise DataError(
                f"{_name_of(problem)}: its tests cannot run: {reason}; fix or leave out the "
                "problem, or set judge.allow_test_errors=true and get no verdict on it"
            )


def _mismatch(problem: Problem, settings: JudgeConfig) -> str | None:
    """Why the tests cannot be judged with the method or language; None if they can."""
    tests, method, language = problem.tests, settings.method, settings.language
    if isinstance(tests, SandboxFusionTests) and method != "submit":
        return (
            "it has no tests; only SandboxFusion can judge it, by its own data set "
            f"{tests.sandbox_dataset!r}: choose --use-submit-api, or add ground_truth"
        )
    if isinstance(tests, ProgramTests) and method != "batch":
        return f"the method {method} cannot judge tests in {tests.language}; use batch"
    if isinstance(tests, HumanEvalTests | MbppTests) and language != "python":
        return f"function tests are Python, but judge.language is {language!r}"
    if isinstance(tests, StdioTests):
        if tests.fn_name and language != "python":
            return f"calls of {tests.fn_name!r} are Python, but judge.language is {language!r}"
        if tests.fn_name and method == "submit":
            return f"the method submit cannot call {tests.fn_name!r}; use batch or compute_score"
        if method != "batch" and (tests.checker or tests.checker_source):
            return f"the method {method} cannot use the problem's own checker; use batch"
    return None


# What the problems need of a sandbox


@dataclass(frozen=True)
class Needs:
    """Installed languages that a run's problems need in a sandbox, and what their tests import.

    ``imports`` are statements, each with a problem that has it.
    """

    languages: Sequence[str] = ()
    imports: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.languages or self.imports)


def needs_of(config: Config, problems: Sequence[Problem]) -> Needs:
    """Return what problems need of a sandbox."""
    names: set[str] = set()
    for problem in problems:
        if isinstance(problem.tests, ProgramTests):
            names.add(problem.tests.language)
        elif isinstance(problem.tests, StdioTests | SandboxFusionTests):
            names.add(config.judge.for_dataset(problem.dataset).language)
    languages = sorted(name for name in names & LANGUAGES.keys() if LANGUAGES[name].tools)
    imports: dict[str, str] = {}
    for problem in () if config.judge.allow_test_errors else problems:  # the judge finds them again
        if isinstance(problem.tests, HumanEvalTests | MbppTests):
            for statement in plan_of(problem.tests).imports:
                imports.setdefault(statement, _name_of(problem))
    return Needs(languages, imports)


def _name_of(problem: Problem) -> str:
    return f"{problem.dataset}: problem {problem.problem_id!r}"
