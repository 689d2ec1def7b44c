"""Preflight checks before a run writes anything: problems, sandboxes, judge workers."""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from redis import Redis

from shared.config import Config, JudgeConfig
from shared.errors import ConfigError, DataError, ServiceError, UnavailableError
from shared.ledger import JudgeQueue
from shared.schemas import Problem, ProgramTests, StdioTests

if TYPE_CHECKING:
    import aiohttp


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


async def check_sandboxes(urls: Sequence[str], timeout: float = 10.0) -> None:
    """Ping every sandbox; ``timeout`` is in seconds, for each.

    Raises:
        ServiceError: A sandbox is unreachable, or is not a SandboxFusion server.
    """
    import aiohttp  # here, because an embedded run over recorded completions makes no request

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session:
        for url in urls:
            await _ping(session, url.rstrip("/").removesuffix("/run_code"))


def check_judges(redis: Redis) -> None:
    """Check that a judge worker listens to the queue.

    Raises:
        UnavailableError: There is no worker.
    """
    if JudgeQueue(redis).workers() == 0:
        raise UnavailableError(
            "no judge worker is running; start one with this Redis: python -m services.judge"
        )


async def _ping(session: "aiohttp.ClientSession", url: str) -> None:
    import aiohttp

    from services.runner.responses import exception_message

    advice = "start it, set sandbox.url (or SANDBOX_URLS), or use --embedded"
    try:
        async with session.get(f"{url}/v1/ping") as response:
            body = await response.text()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise UnavailableError(
            f"the sandbox at {url} is not reachable: {exception_message(error)}; {advice}"
        ) from None
    if response.status != 200 or "pong" not in body:
        raise ServiceError(
            f"the server at {url} is not a SandboxFusion server (GET /v1/ping returned "
            f"{response.status}); {advice}"
        )
