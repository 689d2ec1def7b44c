"""Preflight checks before a run writes anything: problems, sandboxes, judge workers."""

import asyncio
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError
from redis import Redis

from shared.address import Address
from shared.config import Config, JudgeConfig
from shared.datasets import python_solutions
from shared.environment import PACKAGES, SandboxEnvironment
from shared.errors import ConfigError, DataError, ServiceError, UnavailableError
from shared.files import cache_folder
from shared.function_plan import (
    failed_trials,
    fault_of,
    plan_of,
    solution_texts,
    trial_program,
)
from shared.harness.languages import LANGUAGES
from shared.ledger.queue import live_workers
from shared.schemas import (
    GroundTruth,
    HumanEvalTests,
    MbppTests,
    Problem,
    ProgramTests,
    SandboxFusionTests,
    StdioTests,
    sha256,
)
from shared.service.bodies import read_answer
from shared.text import one_line

if TYPE_CHECKING:
    import aiohttp

_MAX_ANSWER = 2**24
_PING_SECONDS = 10.0


def check_judging(config: Config, problems: Sequence[Problem]) -> None:
    """Check that the config's judging method and language fit each problem.

    Raises:
        ConfigError: ``judge.datasets`` names a data set that the run does not have.
        DataError: A problem's tests cannot be judged with the method or language, or cannot run
            whatever the answer is.
    """
    datasets = sorted({problem.dataset for problem in problems})
    for name in config.judge.datasets:
        if name not in datasets:
            near = difflib.get_close_matches(name, datasets, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"judge.datasets names {name!r}, which is not in this run{hint}")
    settings = {name: config.judge.for_dataset(name) for name in datasets}
    for problem in problems:
        named = _named_as(problem)
        if reason := _mismatch(problem, settings[problem.dataset]):
            raise DataError(f"{named}: {reason}")
        if not config.judge.allow_test_errors and (reason := fault_of(problem.tests)):
            raise DataError(
                f"{named}: its tests cannot run: {reason}; mend or leave out the problem, or set "
                "judge.allow_test_errors=true and get no verdict on it"
            )


def _mismatch(problem: Problem, settings: JudgeConfig) -> str | None:
    tests = problem.tests
    if isinstance(tests, SandboxFusionTests):
        if settings.method != "submit":
            return (
                "it has no tests; only SandboxFusion can judge it, by its own data set "
                f"{tests.sandbox_dataset!r}: choose --use-submit-api, or add ground_truth"
            )
        return None
    if isinstance(tests, ProgramTests):
        if settings.method != "batch":
            return f"the method {settings.method} cannot judge tests in {tests.language}; use batch"
        return None
    if not isinstance(tests, StdioTests):
        if settings.language != "python":
            return f"function tests are Python, but judge.language is {settings.language!r}"
        return None
    if tests.fn_name and settings.language != "python":
        return f"calls of {tests.fn_name!r} are Python, but judge.language is {settings.language!r}"
    if tests.fn_name and settings.method == "submit":
        return f"the method submit cannot call {tests.fn_name!r}; use batch or compute_score"
    if settings.method != "batch" and (tests.checker or tests.checker_source):
        return f"the method {settings.method} cannot use the problem's own checker; use batch"
    return None


async def check_sandboxes(urls: Sequence[str], *, headers: Mapping[str, str] | None = None) -> None:
    """Ping every sandbox, and check that it admits requests with these headers.

    Raises:
        ServiceError: A sandbox is unreachable, or is not a SandboxFusion server.
        ConfigError: It requires another token.
    """
    import aiohttp  # here, because an embedded run over recorded completions makes no request

    limit = aiohttp.ClientTimeout(total=_PING_SECONDS)
    async with aiohttp.ClientSession(timeout=limit, headers=headers) as session:
        for url in urls:
            await _ping(session, _sandbox(url))


# Seconds; the first compilation of Go compiles its library too.
_COMPILE_SECONDS = 60
# Reference solutions in a program, characters of it, and programs at a time.
_TRIALS, _TRIAL_CHARACTERS, _AT_ONCE = 40, 8 << 20, 4


@dataclass(frozen=True)
class Needs:
    """What the problems of a run need of a sandbox.

    Attributes:
        languages: Those that are compiled or otherwise installed.
        imports: Statements of the tests that import modules, each with a problem that has it.
        solutions: Programs of reference solutions with their tests, by problem, in texts.
        insisted: Whether the run goes on without what fails.
    """

    languages: Sequence[str] = ()
    imports: Mapping[str, str] = field(default_factory=dict)
    solutions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    insisted: bool = False

    def __bool__(self) -> bool:
        return bool(self.languages or self.imports or self.solutions)

    def trials(self) -> Iterator[str]:
        """Yield programs that try imports and solutions."""
        chunk: dict[str, Sequence[str]] = {}
        size = 0
        for problem, texts in self.solutions.items():
            chunk[problem] = texts
            size += sum(map(len, texts))
            if size > _TRIAL_CHARACTERS or len(chunk) == _TRIALS:
                yield trial_program(self.imports, chunk)
                chunk, size = {}, 0
        if chunk or (self.imports and not self.solutions):
            yield trial_program(self.imports, chunk)


def needs_of(config: Config, problems: Sequence[Problem], files: Sequence[str] = ()) -> Needs:
    """Return what problems need of a sandbox; ``files`` may have reference solutions to try.

    Raises:
        DataError: A file cannot be read.
    """
    found = set()
    for dataset, tests in {(p.dataset, _language(p.tests)) for p in problems}:
        found.add(tests or config.judge.for_dataset(dataset).language)
    languages = sorted(name for name in found & LANGUAGES.keys() if LANGUAGES[name].tools)
    plans = {
        (problem.dataset, problem.problem_id): plan_of(problem.tests)
        for problem in problems
        if isinstance(problem.tests, HumanEvalTests | MbppTests)
    }
    insisted = config.judge.allow_test_errors
    imports: dict[str, str] = {}
    for name, plan in plans.items():
        for statement in () if insisted else plan.imports:  # the judge finds them again
            imports.setdefault(statement, _named(*name))
    solutions = {
        _named(dataset, number): solution_texts(of_problem, solution)
        for dataset, number, solution in (python_solutions(files) if plans else ())
        if (of_problem := plans.get((dataset, number))) and not of_problem.fault
    }
    return Needs(languages, imports, solutions, insisted)


def with_faults(problems: Sequence[Problem], faults: Mapping[str, str]) -> Sequence[Problem]:
    """Return the problems, with the reasons of :func:`check_needs` in their tests."""
    return [
        _with_fault(problem, faults[name]) if (name := _named_as(problem)) in faults else problem
        for problem in problems
    ]


def _with_fault(problem: Problem, fault: str) -> Problem:
    tests = json.loads(problem.ground_truth) | {"fault": fault}
    return Problem(**{**problem.model_dump(), "ground_truth": json.dumps(tests)})


def _named_as(problem: Problem) -> str:
    return _named(problem.dataset, problem.problem_id)


def _named(dataset: str, problem_id: str) -> str:
    return f"{dataset}: problem {problem_id!r}"


def _language(tests: GroundTruth) -> str | None:
    """The language that the tests fix; None if the config chooses it."""
    if isinstance(tests, ProgramTests):
        return tests.language
    return None if isinstance(tests, StdioTests | SandboxFusionTests) else "python"


async def check_needs(
    urls: Sequence[str], needs: Needs, *, headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Run a program in each of the languages in every sandbox, and try what the tests need.

    Imports and reference solutions that a sandbox with the same packages has run before, for this
    user, are not tried again. Returns why reference solutions fail, by problem, if the run goes on
    nevertheless.

    Raises:
        ConfigError: A sandbox lacks the toolchain of a language or a module, or a problem's own
            reference solution fails.
        ServiceError: A sandbox is unreachable.
    """
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=3 * _COMPILE_SECONDS)
    faults: dict[str, str] = {}
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        for url in urls:
            for language in needs.languages:
                await _check_language(session, _sandbox(url), language)
            faults |= await _try_tests(session, _sandbox(url), needs)
    return faults


def _sandbox(url: str) -> Address:
    return Address.parse(url.rstrip("/").removesuffix("/run_code"))


async def _check_language(
    session: "aiohttp.ClientSession", address: Address, language: str
) -> None:
    answer = await _run(session, address, language, LANGUAGES[language].idle)
    reason = _why_not_run(answer) if answer is not None else None
    if reason is not None:
        raise ConfigError(
            f"{address.url} cannot run {language}: {reason}; install its toolchain there "
            f"(Debian's {LANGUAGES[language].packages}), or choose another sandbox or data set"
        )


def were_tried(needs: Needs, environment: SandboxEnvironment | None) -> bool:
    """Whether :func:`check_needs` has found nothing in such a sandbox before, for this user."""
    if needs.languages or environment is None:
        return False
    packages = json.dumps([environment.python, environment.packages])
    return _exists(_mark(packages, list(needs.trials())))


def _mark(packages: str, programs: Sequence[str]) -> Path:
    """The file that exists once the programs have run well beside these packages."""
    return cache_folder() / "tried" / sha256("\0".join([packages, *programs]))


def _exists(path: Path) -> bool:
    with suppress(OSError):  # the folder may be somebody else's
        return path.exists()
    return False


async def _try_tests(
    session: "aiohttp.ClientSession", address: Address, needs: Needs
) -> dict[str, str]:
    programs = list(needs.trials())
    if not programs:
        return {}
    packages = await _packages(session, address)
    tried = _mark(packages, programs)
    if packages and _exists(tried):
        return {}
    admitted = asyncio.Semaphore(_AT_ONCE)

    async def attempt(program: str) -> Mapping[str, str] | None:
        async with admitted:
            answer = await _run(session, address, "python", program)
        return failed_trials(_stdout(answer)) if answer is not None else None

    found = await asyncio.gather(*map(attempt, programs))
    faults = {name: reason for failed in found for name, reason in (failed or {}).items()}
    for name, reason in faults.items():
        if not needs.insisted:
            raise ConfigError(_told(needs, address, name, reason))
    if packages and not faults and None not in found:
        with suppress(OSError):
            tried.parent.mkdir(parents=True, exist_ok=True)
            tried.touch()
    return {name: f"the reference solution fails: {reason}" for name, reason in faults.items()}


async def _packages(session: "aiohttp.ClientSession", address: Address) -> str:
    """Return interpreter and packages of the sandbox's programs; empty if it is busy."""
    import aiohttp

    with suppress(aiohttp.ClientError, TimeoutError, ValueError, TypeError, KeyError):
        # Ours says it, and a program that finds it out takes a tenth of a second.
        async with session.get(f"{address.url}/readyz", headers=address.headers) as response:
            found = json.loads(await read_answer(response, _MAX_ANSWER))["environment"]
            return json.dumps([found["python"], found["packages"]])
    answer = await _run(session, address, "python", PACKAGES + "print(found)")
    return "" if answer is None else _stdout(answer).decode()


def _told(needs: Needs, address: Address, name: str, reason: str) -> str:
    insist = "set judge.allow_test_errors=true and get no verdict on such problems"
    if problem := needs.imports.get(name):
        return (
            f"{problem}: its tests cannot run in the sandbox at {address.url}: {name!r}: {reason}; "
            f"install the module there, or {insist}"
        )
    return (
        f"{name}: its tests fail the data's own reference solution in the sandbox at "
        f"{address.url}: {reason}; mend or leave out the problem, or {insist}"
    )


async def _run(
    session: "aiohttp.ClientSession", address: Address, language: str, code: str
) -> bytes | None:
    """Run a program; returns the answer, None if the sandbox is busy."""
    import aiohttp

    base = address.url
    body = {
        "code": code,
        "language": language,
        "compile_timeout": _COMPILE_SECONDS,
        "run_timeout": _COMPILE_SECONDS,
    }
    try:
        async with session.post(f"{base}/run_code", json=body, headers=address.headers) as response:
            text = await read_answer(response, _MAX_ANSWER)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        cause = one_line(error)
        raise UnavailableError(f"{base}: no answer to a program in {language} ({cause})") from None
    return None if response.status in (429, 503) else text  # busy is no reason to refuse the run


def _stdout(text: bytes) -> bytes:
    try:
        run = _Answer.model_validate_json(text).run_result
    except ValidationError:
        return b""
    return (run.stdout or "").encode() if run is not None else b""


class _Command(BaseModel):
    stdout: str | None = None
    stderr: str | None = None


class _Answer(BaseModel):
    status: str
    message: str = ""
    compile_result: _Command | None = None
    run_result: _Command | None = None


def _why_not_run(text: bytes) -> str | None:
    try:
        answer = _Answer.model_validate_json(text)
    except ValidationError:
        return "it does not answer as a SandboxFusion server"
    if answer.status == "Success":
        return None
    failed = answer.run_result or answer.compile_result
    told = answer.message or (failed.stderr if failed else "") or answer.status
    return " ".join(told.split())[:200]


def check_judges(redis: Redis) -> None:
    """Check that a judge worker listens to the queue.

    Raises:
        UnavailableError: There is no worker.
    """
    if not live_workers(redis):
        raise UnavailableError(
            "no judge worker is running; start one with this Redis: python -m services.judge"
        )


async def _ping(session: "aiohttp.ClientSession", address: Address) -> None:
    import aiohttp

    url = address.url
    advice = "start it, set sandbox.url (or SANDBOX_URLS), or use --embedded"
    try:
        async with session.get(f"{url}/v1/ping", headers=address.headers) as response:
            body = await read_answer(response, _MAX_ANSWER)
        async with session.head(f"{url}/run_cases", headers=address.headers) as offer:
            admitted = offer.status != HTTPStatus.UNAUTHORIZED
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise ServiceError(
            f"the sandbox at {url} is not reachable: not an address such as http://localhost:8080"
        ) from None
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UnavailableError(
            f"the sandbox at {url} is not reachable: {one_line(error)}; {advice}"
        ) from None
    if response.status != 200 or b"pong" not in body:
        raise ServiceError(
            f"the server at {url} is not a SandboxFusion server (GET /v1/ping returned "
            f"{response.status}); {advice}"
        )
    if not admitted:
        raise ConfigError(
            f"the sandbox at {url} requires a token, and PLUMBLINE_SANDBOX_TOKEN (or "
            "PLUMBLINE_SANDBOX_TOKEN_FILE) is not it; set it for plumb and for the judges"
        )
