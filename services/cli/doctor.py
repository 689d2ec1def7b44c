"""`plumb doctor`: check what a run needs, and the sandboxes with the canaries of a run."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ValidationError
from redis import Redis

from services.cli import options
from services.cli.console import say
from services.cli.embedded.services import redis_binary
from services.cli.embedded.stack import open_stack
from services.judge.canaries import CanaryProfile, judge_canaries
from services.judge.permits import Permit
from services.judge.sandbox import SandboxClient
from services.runner.preflight import load_problems
from services.runner.sandboxes import check_sandboxes
from shared.address import Address
from shared.artifacts import OutputFolder
from shared.canaries import CanaryReport
from shared.config import Config, load_config
from shared.errors import ConfigError, FindingsError, PlumblineError, ServiceError
from shared.harness.languages import LANGUAGES, PROGRAMS, installation
from shared.ledger import connect
from shared.ledger.queue import live_workers
from shared.redaction import redact_address
from shared.service.settings import RedisSettings, SandboxClientSettings, load_settings
from shared.text import split_urls
from shared.verl_keys import notices
from shared.versions import versions_of

_LEAST_DISK = 1 << 30
# A sandbox that is away is found at once, and not waited for.
_ATTEMPTS, _RETRY_BUDGET = 3, 10.0
_PROGRAM_SECONDS = 30.0
_VERL_VENV = Path(".venv-verl/bin/python")
_VERSIONS = (
    "from importlib.metadata import version as v; print('verl', v('verl'), 'vLLM', v('vllm'))"
)


class Mark(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    NOTE = "note"
    FAILED = "FAILED"


_STYLES = {Mark.OK: "", Mark.NOTE: "yellow", Mark.FAILED: "bold red"}


class CheckLine(NamedTuple):
    """A line of the report; ``subject`` is what was checked."""

    mark: Mark
    subject: str
    text: str


def doctor(
    overrides: options.Overrides = None,
    config: options.ConfigFile = None,
    base_url: options.BaseUrl = None,
    model: options.Model = None,
    data: options.DataPaths = None,
    embedded: options.Embedded = False,
) -> None:
    """Check machine, services, sandboxes, data; exit code 0: all is well, 1: something is not.

    Without a config, services that nobody named are noted and do not fail.
    """
    keys = overrides or []
    flagged = options.server_and_data(options.named_servers(base_url, embedded), data)
    resolved = options.with_model(load_config(config, [*flagged, *keys]), model, keys)
    failed = 0
    named = config is not None or bool(keys)
    for line in _checks(resolved, embedded=embedded, named=named):
        _print(line)
        failed += line.mark is Mark.FAILED
    if failed:
        raise FindingsError(f"{failed} of the checks failed; see what each line says")


def _print(line: CheckLine) -> None:
    words = f"{line.subject}: {line.text}".split()
    say(f"{line.mark:<6} {' '.join(words)}", _STYLES[line.mark])


def _checks(config: Config, *, embedded: bool, named: bool) -> Iterator[CheckLine]:
    for notice in notices(config.run.verl_keys):
        subject, _, text = notice.partition(": ")
        yield CheckLine(Mark.NOTE, subject, text)
    # An embedded run cannot do without the parts that this machine lacks.
    lacking = Mark.FAILED if embedded else Mark.NOTE
    versions = versions_of(["plumbline"])
    version = f"Python {versions['python']}, plumbline {versions.get('plumbline', 'not installed')}"
    yield CheckLine(Mark.OK, "interpreter", f"{version}, {sys.executable}")
    yield from _isolation(lacking)
    yield from _checked("redis-server", _redis_server(), lacking)
    own = config.generation.backend == "verl"
    yield from _checked("verl", _verl(config), lacking if own else Mark.NOTE)
    yield from _disk(config)
    yield from _checked("data", _data(config))
    yield from _checked("generator", _generator(config))
    if embedded:
        yield from _checked("services", _embedded(config))
    else:
        yield from _unless(named, "REDIS_URL", _checked("Redis", _redis()))
        yield from _unless(named, "SANDBOX_URLS", _sandboxes(config, _urls(config)))


def _checked(
    subject: str, lines: Iterator[CheckLine], mark: Mark = Mark.FAILED
) -> Iterator[CheckLine]:
    """Yield the lines of a check; an error that ends it is a line with this mark."""
    try:
        yield from lines
    except PlumblineError as error:
        yield CheckLine(mark, subject, str(error))


def _unless(named: bool, variable: str, lines: Iterator[CheckLine]) -> Iterator[CheckLine]:
    """Turn failures into notes for a service at its default address, unless somebody named one."""
    lenient = not (named or os.environ.get(variable))
    for line in lines:
        yield line._replace(mark=Mark.NOTE) if lenient and line.mark is Mark.FAILED else line


def _urls(config: Config) -> list[str]:
    named = split_urls(os.environ.get("SANDBOX_URLS", ""))
    urls = [url.rstrip("/").removesuffix("/run_code") for url in named]
    return urls or config.sandbox_urls


# The machine


class _Isolation(BaseModel):
    isolation: str
    identity: str
    missing: list[str]
    python: str
    languages: list[str]
    lacking: list[str]


def _isolation(lacking: Mark) -> Iterator[CheckLine]:
    """Check isolation, languages and modules of an embedded sandbox."""
    if importlib.util.find_spec("services.sandbox") is None:
        text = "no sandbox in this installation; SANDBOX_URLS or sandbox.url name one elsewhere"
        yield CheckLine(Mark.NOTE, "isolation", text)
        return
    try:
        report = _output([sys.executable, "-m", "services.sandbox.probe"])
        probe = _Isolation.model_validate_json(report)
    except (ServiceError, ValidationError) as error:
        cause = error if isinstance(error, ServiceError) else report[:300]
        remedy = "install bubblewrap, or allow user namespaces (docs/troubleshooting.md)"
        yield CheckLine(lacking, "isolation", f"none works here: {cause}; {remedy}")
        return
    text = f"{probe.isolation}, programs run as {probe.identity}"
    if probe.missing:
        text += f"; missing: {', '.join(probe.missing)}; install bubblewrap for more"
    yield CheckLine(Mark.NOTE if probe.missing else Mark.OK, "isolation", text)
    absent = installation(
        LANGUAGES[language] for language in PROGRAMS if language not in probe.languages
    )
    missing = f"; packages of others: {absent}" if absent else ""
    text = f"{', '.join(probe.languages)}{missing}; Python is {probe.python}"
    yield CheckLine(Mark.OK if "cpp" in probe.languages else Mark.NOTE, "languages", text)
    if not probe.lacking:
        text = "programs can import what docs/judging.md promises"
        yield CheckLine(Mark.OK, "modules", text)
        return
    text = f"programs cannot import {', '.join(probe.lacking)}; unset PLUMBLINE_SANDBOX_PYTHON"
    # Tests of public sets import numpy.
    yield CheckLine(Mark.FAILED if "numpy" in probe.lacking else Mark.NOTE, "modules", text)


def _redis_server() -> Iterator[CheckLine]:
    try:
        binary = redis_binary()
    except ServiceError as error:
        raise ServiceError(f"{error}; --embedded needs it") from None
    version = _output([binary, "--version"]).partition(" sha=")[0]
    yield CheckLine(Mark.OK, "redis-server", f"{version}, {binary}")


def _verl(config: Config) -> Iterator[CheckLine]:
    configured = config.generation.verl.python
    python = configured or (str(_VERL_VENV) if _VERL_VENV.exists() else sys.executable)
    try:
        yield CheckLine(Mark.OK, "verl", f"{_output([python, '-c', _VERSIONS])}, {python}")
    except ServiceError:
        remedy = (
            "make install-verl (CPU), or the generator's image; generation.verl.python names it"
        )
        raise ServiceError(f"not installed for {python}; {remedy}") from None


def _output(command: Sequence[str]) -> str:
    """The last line that a program prints.

    Raises:
        ServiceError: It cannot be executed, fails, or takes too long; with its last line.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PROGRAM_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ServiceError(f"{command[0]} does not run: {error}") from None
    text = done.stdout if done.returncode == 0 else done.stderr.strip() or done.stdout
    line = (text.strip().splitlines() or [f"exit code {done.returncode}, no output"])[-1]
    if done.returncode:
        raise ServiceError(f"{command[0]} fails: {line[:300]}")
    return line


# Services and data


def _disk(config: Config) -> Iterator[CheckLine]:
    folder = OutputFolder(config.output_dir)
    places = [tempfile.gettempdir()]
    if folder.local:
        path = Path(folder.path)
        places.append(str(next(p for p in (path, *path.absolute().parents) if p.is_dir())))
    for place in dict.fromkeys(places):
        free = shutil.disk_usage(place).free
        text = f"{free / (1 << 30):.1f} GiB free"
        if free < _LEAST_DISK:
            text += "; make room for at least 1 GiB"
        mark = Mark.FAILED if free < _LEAST_DISK else Mark.OK
        yield CheckLine(mark, f"disk at {place}", text)


def _data(config: Config) -> Iterator[CheckLine]:
    try:
        places = config.data.eval_files or options.default_data()
    except ConfigError as error:
        yield CheckLine(Mark.NOTE, "data", str(error))
        return
    problems = len(load_problems(config.data, places, allow_unlocked=False).problems)
    if config.data.lock is None:
        text = f"{problems} problems, not checked against a lock (data.lock)"
        yield CheckLine(Mark.NOTE, "data", text)
    else:
        yield CheckLine(Mark.OK, "data", f"{problems} problems as in {config.data.lock}")


def _generator(config: Config) -> Iterator[CheckLine]:
    generation = config.generation
    if not (urls := generation.base_urls):
        text = "no servers configured (generation.base_urls)"
        if generation.backend != "openai":
            text = f"plumb run --embedded starts the backend {generation.backend}"
        yield CheckLine(Mark.NOTE, "generator", text)
        return
    # Imported here because aiohttp takes long, and runs over recorded completions need none.
    from services.cli.execute import check_generator

    asyncio.run(check_generator(config, urls))
    text = f"{', '.join(map(redact_address, urls))} offers a model"
    yield CheckLine(Mark.OK, "generator", text)


def _redis() -> Iterator[CheckLine]:
    with connect(load_settings(RedisSettings).redis_url) as redis:
        yield CheckLine(Mark.OK, "Redis", "answers")
        yield from _checked("judges", _judges(redis))


def _judges(redis: Redis) -> Iterator[CheckLine]:
    if not live_workers(redis):
        raise ServiceError(
            "no judge worker is running; start one with this Redis: python -m services.judge"
        )
    yield CheckLine(Mark.OK, "judges", "at least one worker is registered")


def _embedded(config: Config) -> Iterator[CheckLine]:
    with (
        tempfile.TemporaryDirectory(prefix="plumb-doctor-") as folder,
        open_stack(config, OutputFolder(folder), force=False, generator=False) as stack,
    ):
        yield CheckLine(Mark.OK, "services", "Redis, sandbox, judge and aggregator start")
        yield from _sandboxes(config, stack.sandbox_urls)


def _sandboxes(config: Config, urls: Sequence[str]) -> Iterator[CheckLine]:
    for url in urls:
        subject = f"sandbox {redact_address(url)}"
        yield from _checked(subject, _sandbox(subject, config, url))


def _sandbox(subject: str, config: Config, url: str) -> Iterator[CheckLine]:
    headers = load_settings(SandboxClientSettings).sandbox_headers
    asyncio.run(check_sandboxes([url], headers=headers))
    yield CheckLine(Mark.OK, subject, "answers")
    reports = asyncio.run(_judge(config, url, headers))
    yield from _modules(f"{subject}, modules", reports[0])
    for report in reports:
        yield from _of_report(subject, report)


async def _judge(config: Config, url: str, headers: dict[str, str]) -> list[CanaryReport]:
    """Judge the canaries of all profiles under the config's method."""
    method = config.judge.method
    profiles = [CanaryProfile(method, "python", functions=kind) for kind in (False, True)]
    profiles += [
        CanaryProfile(method, language, functions=False)
        for language in PROGRAMS
        if language != "python"
    ]
    address = Address.parse(url)
    async with SandboxClient(
        _DirectPool([address.url]),
        max_attempts=_ATTEMPTS,
        retry_budget=_RETRY_BUDGET,
        headers={address.url: {**headers, **address.headers}},
    ) as client:
        return [  # the limits are those of Python's profiles
            await judge_canaries(profile, config, client, address.url, limits=False)
            for profile in profiles
        ]


def _modules(subject: str, report: CanaryReport) -> Iterator[CheckLine]:
    """Check which modules the programs of a sandbox find, numpy above all."""
    environment = report.environment
    if environment is None:
        yield CheckLine(Mark.NOTE, subject, "does not tell which modules its programs find")
    elif "numpy" not in environment.packages:
        text = f"its programs find no numpy, which tests import ({environment.describe()})"
        yield CheckLine(Mark.FAILED, subject, f"{text}; install it there (docs/judging.md#modules)")
    else:
        yield CheckLine(Mark.OK, subject, environment.describe())


def _of_report(subject: str, report: CanaryReport) -> Iterator[CheckLine]:
    subject = f"{subject}, {report.profile}"
    for finding in report.wrong:
        text = f"{finding.text}; its verdicts cannot be trusted: fix or replace the sandbox"
        yield CheckLine(Mark.FAILED, subject, text)
    for finding in report.unjudged:
        text = f"canary {finding.canary!r} not judged: {finding.text}; see the sandbox's log"
        yield CheckLine(Mark.FAILED, subject, text)
    for finding in report.unable:
        text = f"cannot run the canary {finding.canary!r}: {finding.text}"
        yield CheckLine(Mark.NOTE, subject, text)
    if report.right == report.sent:
        text = (
            f"all {report.sent} canary programs got the expected verdict in {report.seconds:.1f} s"
        )
        yield CheckLine(Mark.OK, subject, text)


class _DirectPool:
    """Permits without limits, because nothing else of this command runs."""

    def __init__(self, urls: Sequence[str]) -> None:
        self.urls = urls

    def limit(self, url: str, calls: int) -> None:
        pass

    @asynccontextmanager
    async def permit(
        self, *, exclusive: bool = False, avoid: str | None = None, only: str | None = None
    ) -> AsyncIterator[Permit]:
        yield Permit("doctor", only or self.urls[0])
