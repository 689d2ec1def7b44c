"""Preflight checks before a run writes anything: problems, sandboxes, judge workers."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError
from redis import Redis

from shared.address import Address
from shared.config import Config, JudgeConfig
from shared.errors import ConfigError, DataError, ServiceError, UnavailableError
from shared.ledger import JudgeQueue
from shared.schemas import GroundTruth, Problem, ProgramTests, StdioTests
from shared.service.answers import Answers

if TYPE_CHECKING:
    import aiohttp

_ANSWERS = Answers(max_answer=2**24, max_held=2**26)


def check_judging(config: Config, problems: Sequence[Problem]) -> None:
    """Check that the config's judging method and language fit each problem.

    Raises:
        ConfigError: ``judge.datasets`` names a data set that the run does not have.
        DataError: A problem's tests cannot be judged with the method or language.
    """
    datasets = sorted({problem.dataset for problem in problems})
    for name in config.judge.datasets:
        if name not in datasets:
            near = difflib.get_close_matches(name, datasets, n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"judge.datasets names {name!r}, which is not in this run{hint}")
    settings = {name: config.judge.for_dataset(name) for name in datasets}
    for problem in problems:
        if reason := _mismatch(problem, settings[problem.dataset]):
            raise DataError(f"{problem.dataset}: problem {problem.problem_id!r}: {reason}")


def _mismatch(problem: Problem, settings: JudgeConfig) -> str | None:
    tests = problem.tests
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


async def check_sandboxes(
    urls: Sequence[str], timeout: float = 10.0, *, headers: Mapping[str, str] | None = None
) -> None:
    """Ping every sandbox, and check that it admits requests with these headers.

    ``timeout`` is in seconds, for each.

    Raises:
        ServiceError: A sandbox is unreachable, or is not a SandboxFusion server.
        ConfigError: It requires another token.
    """
    import aiohttp  # here, because an embedded run over recorded completions makes no request

    limit = aiohttp.ClientTimeout(total=timeout)
    async with aiohttp.ClientSession(timeout=limit, headers=headers) as session:
        for url in urls:
            await _ping(session, _sandbox(url))


# A program per language that a sandbox with its toolchain runs successfully.
_PROBES = {
    "cpp": "int main() {}",
    "java": "class Main { public static void main(String[] arguments) {} }",
    "nodejs": "",
    "rust": "fn main() {}",
    "go": "package main\nfunc main() {}",
    "go_test": 'package main\nimport "testing"\nfunc TestNothing(t *testing.T) {}',
}
# Seconds; the first compilation of Go compiles its library too.
_COMPILE_SECONDS = 60


def languages_of(config: Config, problems: Iterable[Problem]) -> list[str]:
    """List the compiled or otherwise installed languages that judging the problems takes."""
    found = set()
    for dataset, tests in {(p.dataset, _language(p.tests)) for p in problems}:
        found.add(tests or config.judge.for_dataset(dataset).language)
    return sorted(found & _PROBES.keys())


def _language(tests: GroundTruth) -> str | None:
    """The language that the tests fix; None if the config chooses it."""
    if isinstance(tests, ProgramTests):
        return tests.language
    return None if isinstance(tests, StdioTests) else "python"


async def check_languages(
    urls: Sequence[str], languages: Sequence[str], *, headers: Mapping[str, str] | None = None
) -> None:
    """Run a program in each of the languages in every sandbox.

    Raises:
        ConfigError: A sandbox lacks the toolchain of a language.
        ServiceError: A sandbox is unreachable.
    """
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=3 * _COMPILE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        for url in urls:
            for language in languages:
                await _check_language(session, _sandbox(url), language)


def _sandbox(url: str) -> Address:
    return Address.parse(url.rstrip("/").removesuffix("/run_code"))


async def _check_language(
    session: "aiohttp.ClientSession", address: Address, language: str
) -> None:
    import aiohttp

    from services.runner.responses import exception_message

    base = address.url
    body = {
        "code": _PROBES[language],
        "language": language,
        "compile_timeout": _COMPILE_SECONDS,
        "run_timeout": _COMPILE_SECONDS,
    }
    try:
        async with session.post(f"{base}/run_code", json=body, headers=address.headers) as response:
            text = await _ANSWERS.read(response)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        cause = exception_message(error)
        raise UnavailableError(f"{base}: no answer to a program in {language} ({cause})") from None
    if response.status in (429, 503):
        return  # busy: not a reason to refuse the run
    reason = _why_not_run(text)
    if reason is not None:
        raise ConfigError(
            f"{base} cannot run {language}: {reason}; install its toolchain there, or choose "
            "another sandbox or data set"
        )


class _Command(BaseModel):
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
    if JudgeQueue(redis).workers() == 0:
        raise UnavailableError(
            "no judge worker is running; start one with this Redis: python -m services.judge"
        )


async def _ping(session: "aiohttp.ClientSession", address: Address) -> None:
    import aiohttp

    from services.runner.responses import exception_message

    url = address.url
    advice = "start it, set sandbox.url (or SANDBOX_URLS), or use --embedded"
    try:
        async with session.get(f"{url}/v1/ping", headers=address.headers) as response:
            body = await _ANSWERS.read(response)
        async with session.head(f"{url}/run_cases", headers=address.headers) as offer:
            admitted = offer.status != HTTPStatus.UNAUTHORIZED
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        raise ServiceError(
            f"the sandbox at {url} is not reachable: not an address such as http://localhost:8080"
        ) from None
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UnavailableError(
            f"the sandbox at {url} is not reachable: {exception_message(error)}; {advice}"
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
