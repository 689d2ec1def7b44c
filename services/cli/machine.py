"""Checks of `plumb doctor` that need no service: what this machine has for runs."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ValidationError

from services.cli.embedded.services import redis_binary
from shared.config import Config
from shared.errors import PlumblineError
from shared.harness.languages import LANGUAGES, PROGRAMS, installation
from shared.versions import versions_of

_SECONDS = 30.0
_VERL_VENV = Path(".venv-verl/bin/python")
_VERSIONS = (
    "from importlib.metadata import version as v; print('verl', v('verl'), 'vLLM', v('vllm'))"
)


class Mark(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    NOTE = "note"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class CheckLine:
    """A line of the report; ``subject`` is what was checked."""

    mark: Mark
    subject: str
    text: str


class _Isolation(BaseModel):
    kind: str
    identity: str
    missing: list[str]
    python: str
    languages: list[str]
    lacking: list[str]


def check_machine(config: Config, *, embedded: bool) -> Iterator[CheckLine]:
    """Check interpreter, isolation, languages, Redis and verl.

    Args:
        config: Names the interpreter of verl.
        embedded: Whether a run starts its services here, so that it cannot do without them.
    """
    lacking = Mark.FAILED if embedded else Mark.NOTE
    versions = versions_of(["plumbline"])
    version = f"Python {versions['python']}, plumbline {versions.get('plumbline', 'not installed')}"
    yield CheckLine(Mark.OK, "interpreter", f"{version}, {sys.executable}")
    yield from _isolation(lacking)
    yield _redis_server(lacking)
    yield _verl(config, lacking if config.generation.backend == "verl" else Mark.NOTE)


def _isolation(lacking: Mark) -> Iterator[CheckLine]:
    if importlib.util.find_spec("services.sandbox") is None:
        text = "no sandbox in this installation; SANDBOX_URLS or sandbox.url name one elsewhere"
        yield CheckLine(Mark.NOTE, "isolation", text)
        return
    _, lines = _output([sys.executable, "-m", "services.sandbox.probe"])
    try:
        probe = _Isolation.model_validate_json(lines[-1])
    except ValidationError:
        remedy = "install bubblewrap, or allow user namespaces (docs/troubleshooting.md)"
        yield CheckLine(lacking, "isolation", f"none works here: {lines[-1]}; {remedy}")
        return
    text = f"{probe.kind}, programs run as {probe.identity}"
    if probe.missing:
        text += f"; missing: {', '.join(probe.missing)}; install bubblewrap for more"
    yield CheckLine(Mark.NOTE if probe.missing else Mark.OK, "isolation", text)
    absent = installation(
        LANGUAGES[language] for language in PROGRAMS if language not in probe.languages
    )
    missing = f"; packages of others: {absent}" if absent else ""
    text = f"{', '.join(probe.languages)}{missing}; Python is {probe.python}"
    mark = Mark.OK if "cpp" in probe.languages else Mark.NOTE
    yield CheckLine(mark, "languages", text)
    if not probe.lacking:
        text = "programs can import what docs/judging.md promises"
        yield CheckLine(Mark.OK, "modules", text)
        return
    text = f"programs cannot import {', '.join(probe.lacking)}; unset PLUMBLINE_SANDBOX_PYTHON"
    # Tests of public sets import numpy.
    yield CheckLine(Mark.FAILED if "numpy" in probe.lacking else Mark.NOTE, "modules", text)


def _redis_server(lacking: Mark) -> CheckLine:
    try:
        binary = redis_binary()
    except PlumblineError as error:
        return CheckLine(lacking, "redis-server", f"{error}; --embedded needs it")
    succeeded, lines = _output([binary, "--version"])
    if not succeeded:
        return CheckLine(lacking, "redis-server", f"{binary} does not run: {lines[-1]}")
    version = lines[-1].partition(" sha=")[0]
    return CheckLine(Mark.OK, "redis-server", f"{version}, {binary}")


def _verl(config: Config, lacking: Mark) -> CheckLine:
    configured = config.generation.verl.python
    python = configured or (str(_VERL_VENV) if _VERL_VENV.exists() else sys.executable)
    succeeded, lines = _output([python, "-c", _VERSIONS])
    if succeeded:
        return CheckLine(Mark.OK, "verl", f"{lines[-1]}, {python}")
    remedy = "make install-verl (CPU), or the generator's image; generation.verl.python names it"
    return CheckLine(lacking, "verl", f"not installed for {python}; {remedy}")


def _output(command: Sequence[str]) -> tuple[bool, list[str]]:
    """Run a program with a time limit.

    Returns whether it succeeded, and the lines that it printed; of a failure those on stderr, if
    there are any. There is at least one line.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, [str(error)]
    succeeded = done.returncode == 0
    text = done.stdout if succeeded else done.stderr.strip() or done.stdout
    lines = [line.strip()[:300] for line in text.splitlines() if line.strip()]
    return succeeded, lines or [f"exit code {done.returncode}, no output"]
