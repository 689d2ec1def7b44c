"""Preflight checks before a run writes anything: problems, their tests, judge workers."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redis import Redis

from shared.config import Config, JudgeConfig
from shared.errors import ConfigError, DataError, UnavailableError
from shared.function_plan import fault_of, plan_of
from shared.harness.languages import LANGUAGES
from shared.ledger.queue import live_workers
from shared.schemas import (
    HumanEvalTests,
    MbppTests,
    Problem,
    ProgramTests,
    SandboxFusionTests,
    StdioTests,
)


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


def check_judges(redis: Redis) -> None:
    """Check that a judge worker listens to the queue.

    Raises:
        UnavailableError: There is no worker.
    """
    if not live_workers(redis):
        raise UnavailableError(
            "no judge worker is running; start one with this Redis: python -m services.judge"
        )


# What the problems need of a sandbox


@dataclass(frozen=True)
class Needs:
    """What the problems of a run need of a sandbox.

    Attributes:
        languages: Those that are compiled or otherwise installed.
        imports: Statements of the tests that import modules, each with a problem that has it.
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
