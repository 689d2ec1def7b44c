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
from tests.sandbox.channels import CHANNELS, PATTERN, PRELUDE, Channel
from tests.sandbox.test_cases_apart import MORE, program

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


def reference(folder: Path, python: str, program: bytes, stdin: bytes) -> End:
    case = Path(tempfile.mkdtemp(dir=folder)) / "case"
    case.mkdir()
    (case / "solution.py").write_bytes(program)
    source = case.parent / "in"
    source.write_bytes(stdin)
    with source.open("rb") as file:
        ended = subprocess.run(
            [python, str(case / "solution.py")],
            cwd=case,
            env=ENVIRONMENT,
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


def compared(
    folder: Path, python: str, program: bytes, inputs: Sequence[bytes]
) -> tuple[list[End], list[End]]:
    """Return the ends in the harness, and those of the program by itself."""
    expected = [reference(folder, python, program, stdin) for stdin in inputs]
    result, case = harness(folder, python, program, inputs)
    assert (result.compiled, result.end, len(result.cases)) == ("ok", "done", len(inputs)), result
    runs = [result.cases[place] for place in range(len(inputs))]
    ends = [_end(case, run.stdout, run.exit_code, run.stderr.encode()) for run in runs]
    return ends, expected


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


# As root with exactly the capabilities that docs/operations.md names


PYTHON = "/usr/bin/python3"  # one that every user can read
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")

HOSTILE = """
import os
os.makedirs("locked/away")
open("locked/away/file", "w").close()
os.chmod("locked", 0)
try:
    os.kill(os.getppid(), 9)
except PermissionError:
    print("refused", os.getuid() != 0)
"""


@pytest.mark.skipif(
    shutil.which("setpriv") is None or not Path(PYTHON).exists(),
    reason="needs setpriv and a Python of the system",
)
@pytest.mark.parametrize("folder", USERS[1:], indirect=True)
def test_an_answer_is_another_user_and_cannot_end_the_harness(folder: Path) -> None:
    """SandboxFusion's server is stood in for by what it does: the program by `bash -c`."""
    key = secrets.token_bytes(32)
    main, inputs = place_harness(folder, HOSTILE.encode(), [b"1\n", b"2\n"], LIMITS)
    bounding = ",".join(["-all", *(f"+{name.lower()}" for name in CAPABILITIES)])
    subprocess.run(
        ["setpriv", "--inh-caps=-all", f"--bounding-set={bounding}", "--no-new-privs",
         "/bin/bash", "-c", f"{PYTHON} {main}"],
        cwd=folder, input=key.hex().encode() + inputs,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    result = results_of(folder, key)
    assert result.end == "done"
    assert [case.stdout for case in result.cases.values()] == [b"refused True\n"] * 2


# Nothing passes from case to case where the harness arrives as files


# What is closed without a user of its own, too.
EVERYWHERE = {
    "daemons", "sockets", "memory", "folder above", "own folder", "results", "streams",
    "descriptors",
}  # fmt: skip


def leak(folder: Path, python: str, channel: Channel) -> list[str]:
    """Return what cases see before and after another one, if that differs."""
    message = f"MSG-{secrets.token_hex(16)}"
    code = program(f"{PRELUDE}\nEXTRA = os.getcwd()\n", channel)
    environment = {**ENVIRONMENT, "HOME": "/nonexistent"}
    inputs = [b"look", f"leave {message}".encode(), b"look", f"leave {message}".encode(), b"look"]
    result, _ = harness(folder, python, code.encode(), inputs, environment)
    Path("/tmp", message[:20]).unlink(missing_ok=True)  # the socket of a program without a sandbox
    assert 0 in result.cases, result
    assert result.cases[0].exit_code == 0, result.cases[0]
    seen = [result.cases[place].stdout.decode() for place in (0, 2, 4) if place in result.cases]
    assert len(seen) == 3 or result.end in ("full", "lost", None)
    return seen if len(set(seen)) > 1 or any(re.search(PATTERN, look) for look in seen) else []


@pytest.fixture
def public_python(folder: Path) -> str:
    """An interpreter that all users can run, so that answers get a user of their own."""
    for name in (str(Path(sys.executable).resolve()), "/usr/bin/python3"):
        if Path(name).exists():
            result, _ = harness(folder, name, b"import os; print(os.getuid())", [b""])
            if result.cases[0].stdout not in (b"", b"%d\n" % os.getuid()):
                return name
    pytest.skip("no user of its own here")


@pytest.mark.parametrize("folder", USERS[1:], indirect=True)
def test_no_channel_with_a_user_of_its_own(folder: Path, public_python: str):
    every = {**CHANNELS, **MORE}
    found = {name: leak(folder, public_python, channel) for name, channel in every.items()}
    assert {name: seen for name, seen in found.items() if seen} == {}


@pytest.mark.parametrize("folder", ["same user"], indirect=True)
def test_no_channel_but_files_with_the_same_user(folder: Path, python: str):
    every = {name: one for name, one in {**CHANNELS, **MORE}.items() if name in EVERYWHERE}
    found = {name: leak(folder, python, channel) for name, channel in every.items()}
    assert {name: seen for name, seen in found.items() if seen} == {}


@pytest.mark.parametrize("folder", USERS[1:], indirect=True)
def test_the_last_case_leaves_nothing_either(folder: Path, public_python: str):
    message = f"MSG-{secrets.token_hex(16)}"
    code = (
        "for folder in ('/tmp', '/var/tmp', '/dev/shm'):\n"
        f"    try: open(f'{{folder}}/{message}', 'w').close()\n    except OSError: pass\n"
    )
    harness(folder, public_python, code.encode(), [b"", b""])
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        assert not Path(place, message).exists()
