"""The harness equals ``python solution.py < input | cat``, program by program.

A program that needs a pipe for its input is compared with ``cat input | python solution.py | cat``.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from shared.harness.cases.streams import wants_pipe
from shared.harness.wire import CallResult, CaseLimits
from tests.judge.fidelity_programs import PROGRAMS
from tests.judge.local import place_harness, results_of

T = TypeVar("T")
LIMITS = CaseLimits(
    cpu=20, wall=60, compile=30, budget=100, memory=4 << 30, output=16 << 20, processes=100
)
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def _interpreters() -> list[str]:
    """This one, and those that PLUMBLINE_TEST_PYTHONS names (separated by ``:``)."""
    own = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
    more = os.environ.get("PLUMBLINE_TEST_PYTHONS", "").split(":")
    return list(dict.fromkeys([own, *filter(None, more)]))


PYTHONS = _interpreters()


@dataclass(frozen=True)
class End:
    stdout: bytes
    exit_code: int
    stderr: str


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Where root lets others in, the harness gives answers a user of their own.
USERS = ["same user", "own user"] if os.geteuid() == 0 else ["same user"]


@pytest.fixture(
    params=[*(pytest.param(user, marks=pytest.mark.nightly) for user in USERS[:-1]), USERS[-1]]
)
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp())
    if request.param == "own user":
        path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def reference(
    folder: Path, python: str, program: bytes, stdin: bytes, environment: dict[str, str]
) -> End:
    case = Path(tempfile.mkdtemp(dir=folder)) / "case"
    case.mkdir()
    (case / "solution.py").write_bytes(program)
    source = case.parent / "in"
    source.write_bytes(stdin)
    with source.open("rb") as file:
        ended = subprocess.run(
            [python, str(case / "solution.py")],
            cwd=case,
            env=environment,
            capture_output=True,
            timeout=60,
            **({"input": stdin} if wants_pipe(program) else {"stdin": file}),  # type: ignore[call-overload]
        )
    return _end(case, ended.stdout, ended.returncode, ended.stderr)


def _end(case: Path, stdout: bytes, exit_code: int, stderr: bytes) -> End:
    path = str(case).encode()
    text = stderr.replace(path, b"CASE").decode("utf-8", "replace")
    return End(stdout.replace(path, b"CASE"), exit_code, re.sub(r"0x[0-9a-f]{6,}", "0x", text))


def harness(
    folder: Path,
    python: str,
    program: bytes,
    inputs: Sequence[bytes],
    environment: dict[str, str] | None = None,
    limits: CaseLimits = LIMITS,
    language: str = "python",
) -> tuple[CallResult, Path]:
    place = Path(tempfile.mkdtemp(dir=folder))
    place.chmod(0o755)
    key = secrets.token_bytes(32)
    main, rest = place_harness(place, program, inputs, limits, language)
    ended = subprocess.run(
        [python, str(main)],
        cwd=place,
        env=environment or ENVIRONMENT,
        input=key.hex().encode() + rest,
        capture_output=True,
        timeout=100,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    return results_of(place, key), place / "case"


def ends(
    folder: Path,
    python: str,
    program: bytes,
    inputs: Sequence[bytes],
    environment: dict[str, str] | None = None,
) -> list[End]:
    got, case = harness(folder, python, program, inputs, environment)
    assert (got.compiled, got.end, len(got.cases)) == ("ok", "done", len(inputs)), got
    runs = [got.cases[place] for place in range(len(inputs))]
    return [_end(case, run.stdout, run.exit_code, run.stderr.encode()) for run in runs]


def compared(
    folder: Path,
    python: str,
    program: bytes,
    inputs: Sequence[bytes],
    environment: dict[str, str] | None = None,
) -> tuple[list[End], list[End]]:
    """Return the ends in the harness, and those of the program by itself."""
    environment = environment or ENVIRONMENT
    wanted = [reference(folder, python, program, stdin, environment) for stdin in inputs]
    got = ends(folder, python, program, inputs, environment)
    return got, wanted


def together(work: Callable[[str], T], names: Iterable[str]) -> dict[str, T]:
    """Do the work for every name, eight at a time."""
    names = list(names)
    with ThreadPoolExecutor(8) as threads:
        return dict(zip(names, threads.map(work, names), strict=True))


@pytest.mark.timeout(600)
def test_programs_end_as_by_themselves(folder: Path, python: str) -> None:
    def compare(name: str) -> tuple[list[End], list[End]]:
        program, *inputs = PROGRAMS[name]
        return compared(folder, python, program, inputs or [b""])

    pairs = together(compare, PROGRAMS)
    assert {name: pair for name, pair in pairs.items() if pair[0] != pair[1]} == {}
