"""A program in a slot's warmed interpreter ends as one with an interpreter of its own.

The programs are those of the harness's tests; both runs are ``/run_code`` in the same container.
"""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.judge.fidelity_programs import NOT_IN, PROGRAMS, SILENT, VERSIONED
from tests.sandbox.conftest import Sandbox, StartSandbox

# With a file next to it a program gets a new interpreter.
OTHER = "other-file"


@dataclass(frozen=True)
class End:
    stdout: str
    exit_code: int
    stderr: str


def text_of(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def texts(name: str) -> tuple[str, str] | None:
    """Program and first input, if a request can carry them."""
    program, *inputs = PROGRAMS[name]
    code, stdin = text_of(program), text_of(inputs[0] if inputs else b"")
    return None if code is None or stdin is None else (code, stdin)


NAMES = [name for name in PROGRAMS if texts(name) and name not in VERSIONED and name not in NOT_IN]


def end(stdout: str, exit_code: int, stderr: str) -> End:
    def shown(text: str) -> str:
        text = text.replace(f"'{OTHER}', ", "").replace(f", '{OTHER}'", "")
        text = re.sub(r"/tmp/tmp\w+/tmp\w+\.py|/tmp/\w+/case/solution\.py", "PROGRAM", text)
        text = re.sub(r"/tmp/tmp\w+|/tmp/\w+/case", "FOLDER", text)
        return re.sub(r"\btmp\w+\.py|\bsolution\.py", "NAME", re.sub(r"0x[0-9a-f]{6,}", "0x", text))

    return End(shown(stdout), exit_code, shown(stderr))


async def run_code(sandbox: Sandbox, code: str, stdin: str, **more: Any) -> End:
    answer = await sandbox.run(code, stdin=stdin, run_timeout=30, **more)
    result = answer["run_result"]
    assert result["status"] == "Finished", answer
    return end(result["stdout"], result["return_code"], result["stderr"])


@pytest.fixture
async def slot(start_sandbox: StartSandbox) -> Sandbox:
    return await start_sandbox(concurrency=1)


@pytest.mark.parametrize("name", NAMES)
async def test_ends_as_with_an_interpreter_of_its_own(slot: Sandbox, name: str) -> None:
    found = texts(name)
    assert found is not None
    new = await run_code(slot, *found, files={OTHER: ""})
    warmed = await run_code(slot, *found)
    if name in SILENT:
        new, warmed = (End(one.stdout, one.exit_code, "") for one in (new, warmed))
    assert warmed == new
