"""Checks of `plumb doctor` that need no service: what this machine has for runs, and which keys."""

import importlib.util
import os
import shutil
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
from shared.service.tokens import token_from
from shared.versions import versions_of

_SECONDS = 30.0
_VERL_VENV = Path(".venv-verl/bin/python")
_VERSIONS = (
    "from importlib.metadata import version as v; print('verl', v('verl'), 'vLLM', v('vllm'))"
)
# What each key is for.
_KEYS = {
    "OPENAI_API_KEY": "the generator, if it requires one",
    "HF_TOKEN": "models and data of the Hugging Face hub whose terms must be accepted",
    "WANDB_API_KEY": "uploads to Weights & Biases by the aggregator; without it they stay offline",
}
_TOKENS = (
    "REDIS_PASSWORD",
    "PLUMBLINE_SANDBOX_TOKEN",
    "PLUMBLINE_AGGREGATOR_TOKEN",
    "PLUMBLINE_GENERATOR_API_KEY",
    "PLUMBLINE_REWARD_TOKEN",
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
    """Check interpreter, isolation, Redis, Docker, GPUs, verl and keys.

    Args:
        config: Names the interpreter of verl.
        embedded: Whether a run starts its services here, so that it cannot do without them.
    """
    lacking = Mark.FAILED if embedded else Mark.NOTE
    found = versions_of(["plumbline"])
    version = f"Python {found['python']}, plumbline {found.get('plumbline', 'not installed')}"
    yield CheckLine(Mark.OK, "interpreter", f"{version}, {sys.executable}")
    yield from _isolation(lacking)
    yield _redis_server(lacking)
    yield _docker()
    yield _gpus()
    yield _verl(config, lacking if config.generation.backend == "verl" else Mark.NOTE)
    yield from _keys()


def _isolation(lacking: Mark) -> Iterator[CheckLine]:
    if importlib.util.find_spec("services.sandbox") is None:
        text = "no sandbox in this installation; SANDBOX_URLS or sandbox.url name one elsewhere"
        yield CheckLine(Mark.NOTE, "isolation", text)
        return
    done = _output([sys.executable, "-m", "services.sandbox.probe"])
    try:
        found = _Isolation.model_validate_json(done.last)
    except ValidationError:
        remedy = "install bubblewrap, or allow user namespaces (docs/troubleshooting.md)"
        yield CheckLine(lacking, "isolation", f"none works here: {done.error}; {remedy}")
        return
    text = f"{found.kind}, programs run as {found.identity}"
    if found.missing:
        text += f"; missing: {', '.join(found.missing)}; install bubblewrap for more"
    yield CheckLine(Mark.NOTE if found.missing else Mark.OK, "isolation", text)
    absent = installation(LANGUAGES[one] for one in PROGRAMS if one not in found.languages)
    missing = f"; packages of others: {absent}" if absent else ""
    text = f"{', '.join(found.languages)}{missing}; Python is {found.python}"
    mark = Mark.OK if "cpp" in found.languages else Mark.NOTE
    yield CheckLine(mark, "languages", text)
    yield _modules(found.lacking)


def _modules(lacking: Sequence[str]) -> CheckLine:
    if not lacking:
        return CheckLine(Mark.OK, "modules", "programs can import what docs/judging.md promises")
    text = f"programs cannot import {', '.join(lacking)}; unset PLUMBLINE_SANDBOX_PYTHON"
    # Tests of public sets import numpy.
    return CheckLine(Mark.FAILED if "numpy" in lacking else Mark.NOTE, "modules", text)


def _redis_server(lacking: Mark) -> CheckLine:
    try:
        binary = redis_binary()
    except PlumblineError as error:
        return CheckLine(lacking, "redis-server", f"{error}; --embedded needs it")
    done = _output([binary, "--version"])
    version = next((word[2:] for word in done.last.split() if word.startswith("v=")), None)
    if version is None:
        return CheckLine(lacking, "redis-server", f"{binary} does not run: {done.error}")
    return CheckLine(Mark.OK, "redis-server", f"{version}, {binary}")


def _docker() -> CheckLine:
    use = "only the stack in containers needs it (docs/operations.md)"
    if shutil.which("docker") is None:
        return CheckLine(Mark.NOTE, "Docker", f"not installed; {use}")
    done = _output(["docker", "version", "--format", "{{.Server.Version}}"])
    if done.code != 0:
        return CheckLine(Mark.NOTE, "Docker", f"no engine answers: {done.error}; {use}")
    compose = _output(["docker", "compose", "version", "--short"])
    if compose.code != 0:
        text = f"{done.last}, without Compose: install the plugin docker-compose-plugin"
        return CheckLine(Mark.NOTE, "Docker", text)
    return CheckLine(Mark.OK, "Docker", f"{done.last}, Compose {compose.last}")


def _gpus() -> CheckLine:
    without = "generate elsewhere (generation.base_urls), or on the CPU (make install-verl)"
    if shutil.which("nvidia-smi") is None:
        return CheckLine(Mark.NOTE, "GPUs", f"none (no nvidia-smi); {without}")
    done = _output(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"])
    if done.code != 0 or not done.lines:
        return CheckLine(Mark.NOTE, "GPUs", f"none: {done.error}; mend the driver, or {without}")
    return CheckLine(Mark.OK, "GPUs", f"{len(done.lines)}, {'; '.join(sorted(set(done.lines)))}")


def _verl(config: Config, lacking: Mark) -> CheckLine:
    given = config.generation.verl.python
    python = given or (str(_VERL_VENV) if _VERL_VENV.exists() else sys.executable)
    done = _output([python, "-c", _VERSIONS])
    if done.code == 0:
        return CheckLine(Mark.OK, "verl", f"{done.last}, {python}")
    remedy = "make install-verl (CPU), or the generator's image; generation.verl.python names it"
    return CheckLine(lacking, "verl", f"not installed for {python}; {remedy}")


def _keys() -> Iterator[CheckLine]:
    for name, use in _KEYS.items():
        yield _key(name, f"not set; for {use}")
    given = [name for name in _TOKENS if os.environ.get(name) or os.environ.get(f"{name}_FILE")]
    for name in given:
        yield _key(name, "")
    if not given:
        text = "none set; needed where Redis or a service requires one"
        yield CheckLine(Mark.NOTE, "tokens", text)


def _key(name: str, absent: str) -> CheckLine:
    """Check one key; its value is not shown."""
    try:
        key = token_from(os.environ, name)
    except ValueError as error:
        return CheckLine(Mark.FAILED, name, f"{error}; change or remove the variable")
    if key is None:
        return CheckLine(Mark.NOTE, name, absent)
    in_file = not os.environ.get(name)
    return CheckLine(Mark.OK, name, "set by its file" if in_file else "set")


@dataclass(frozen=True, slots=True)
class _Output:
    code: int
    lines: list[str]
    errors: list[str]

    @property
    def last(self) -> str:
        return self.lines[-1] if self.lines else ""

    @property
    def error(self) -> str:
        """The last line on stderr, else on stdout."""
        return ((self.errors or self.lines)[-1:] or [f"exit code {self.code}"])[0][:300]


def _output(command: Sequence[str]) -> _Output:
    """Run a program with a time limit; one that cannot be run has the code 127."""
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
        return _Output(127, [], [str(error)])
    return _Output(done.returncode, _filled(done.stdout), _filled(done.stderr))


def _filled(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
