"""A program in a slot's warmed interpreter ends as one with an interpreter of its own.

The programs are those of the harness's tests; both runs are ``/run_code`` in the same container.
"""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.judge.fidelity_programs import PROGRAMS
from tests.sandbox.conftest import Sandbox, StartSandbox

# With a file next to it a program gets a new interpreter.
OTHER = "other-file"
AT_ONCE = 8


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


NAMES = [name for name in PROGRAMS if texts(name)]


def end(stdout: str, exit_code: int, stderr: str) -> End:
    def shown(text: str) -> str:
        text = text.replace(f"'{OTHER}', ", "").replace(f", '{OTHER}'", "")
        text = re.sub(r"/tmp/tmp\w+/tmp\w+\.py|/tmp/\w+/case/solution\.py", "PROGRAM", text)
        text = re.sub(r"/tmp/tmp\w+|/tmp/\w+/case", "FOLDER", text)
        return re.sub(r"\btmp\w+\.py|\bsolution\.py", "NAME", re.sub(r"0x[0-9a-f]{6,}", "0x", text))

    return End(shown(stdout), exit_code, shown(stderr))


async def run_code(sandbox: Sandbox, folder: Path, code: str, stdin: str, **more: Any) -> End:
    answer = await sandbox.run(code, stdin=stdin, run_timeout=30, **more)
    result = answer["run_result"]
    assert result["status"] == "Finished", answer
    stdout, stderr = (result[name].replace(str(folder), "/tmp") for name in ("stdout", "stderr"))
    return end(stdout, result["return_code"], stderr)


async def ends(sandbox: Sandbox, folder: Path, name: str) -> tuple[End, End]:
    """The end with an interpreter of its own, and that in the slot's warmed one."""
    texts_of_program = texts(name)
    assert texts_of_program is not None
    new = await run_code(sandbox, folder, *texts_of_program, files={OTHER: ""})
    warmed = await run_code(sandbox, folder, *texts_of_program)
    return new, warmed


async def test_programs_end_as_with_an_interpreter_of_their_own(
    start_sandbox: StartSandbox, temp_root: Path
) -> None:
    sandbox = await start_sandbox(concurrency=AT_ONCE)
    places = asyncio.Semaphore(AT_ONCE)

    async def compare(name: str) -> tuple[str, tuple[End, End] | str]:
        async with places:
            try:
                return name, await ends(sandbox, temp_root, name)
            except AssertionError as error:
                return name, str(error)

    compared = dict(await asyncio.gather(*map(compare, NAMES)))
    assert len(compared) > 40
    different = {
        name: pair for name, pair in compared.items() if isinstance(pair, str) or pair[0] != pair[1]
    }
    assert not different, different
