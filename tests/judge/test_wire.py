"""Wire format of the harness: its output, and the validation of its output."""

import ast
import base64
import mmap
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.judge.harness.sources import harness_files, source
from shared.harness import wire
from shared.harness.cases import supervisor as supervisors
from shared.harness.cases.files import memory_file
from shared.harness.cases.folders import CaseFolder
from shared.harness.cases.records import ResultsFile, RunSpec
from shared.harness.cases.supervisor import Supervisor
from shared.harness.sources import harness_sources
from shared.harness.wire import CallResult, CaseLimits

ECHO = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())\nprint('ä', file=sys.stderr)"
LIMITS = CaseLimits(cpu=10, wall=40, compile=10, budget=60, memory=2**30, output=2**20)
KEY = secrets.token_bytes(32)


def run_harness(program: str, inputs: Sequence[str], key: bytes = KEY) -> bytes:
    """The results file of a call, made on this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in harness_files().items():
            (folder / file).write_bytes(base64.b64decode(content))
        (folder / "main.py").write_text(source("boot"), encoding="utf-8")
        (folder / wire.ANSWER).write_text(program, encoding="utf-8")
        order = wire.encode_spec(key, "python", LIMITS, inputs).encode()
        subprocess.run([sys.executable, "main.py"], input=order, cwd=folder, check=True, timeout=60)
        return (folder / wire.RESULTS).read_bytes()


def count(result: CallResult) -> int:
    return (result.compiled is not None) + len(result.cases) + (result.end is not None)


class Written:
    """Results of one call, with the places where its records end: there is a line's end each."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        known = [count(wire.decode_results(data[:n], KEY)) for n in range(len(data) + 1)]
        self.ends = [known.index(number + 1) for number in range(known[-1])]
        starts = [0, *(end + 1 for end in self.ends)]
        self.records = [data[a : b + 1] for a, b in zip(starts, self.ends, strict=False)]

    def first(self, number: int) -> CallResult:
        """What the first so many records say."""
        return wire.decode_results(b"".join(self.records[:number]), KEY)


@pytest.fixture(scope="module")
def written() -> Written:
    return Written(run_harness(ECHO, ["one", "", "three\n", "4"]))


# A line that looks like a record, in case anything believes it.
TEXT = st.text() | st.sampled_from(
    ["\0", "\r\n", f"case 0 0 1 1 1 1 - 0 0 {'0' * 32}\n", "end done"]
)


@settings(max_examples=8)
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_each_case_gets_its_input_and_its_output_comes_back(inputs: list[str]) -> None:
    result = wire.decode_results(run_harness(ECHO, inputs), KEY)
    assert (result.compiled, result.end) == ("ok", "done")
    assert list(result.cases) == list(range(len(inputs)))
    for place, text in enumerate(inputs):
        case = result.cases[place]
        assert (case.stdout, case.stderr) == (text.encode(), "ä\n")
        assert (case.exit_code, case.limit) == (0, None)


def test_a_case_in_figures() -> None:
    program = "import time\nkept = bytearray(50_000_000)\nwhile time.process_time() < 0.2: pass\n"
    (case,) = wire.decode_results(run_harness(program, [""]), KEY).cases.values()
    assert 0.15 < case.cpu < 2
    assert case.wall >= case.cpu * 0.9
    assert 50_000_000 < case.memory < 200_000_000


@pytest.mark.parametrize("where", ["here", "in a child"])
def test_user_time_is_told_apart(where: str) -> None:
    """The program says what it took before it ends; the end itself takes little."""
    work = (
        "import os, subprocess, sys, time\n"
        "while os.times().system < 0.2: os.stat('/')\n"
        "while os.times().user < 0.3: pass\n"
        "print(os.times().user, os.times().system)\n"
    )
    # The program's user may not enter the folder of the environment.
    interpreter = str(Path(sys.executable).resolve())
    child = f"import subprocess\nsubprocess.run([{interpreter!r}, '-c', {work!r}])"
    program = work if where == "here" else child
    (case,) = wire.decode_results(run_harness(program, [""]), KEY).cases.values()
    user, system = map(float, case.stdout.split())
    assert user <= case.user + 0.05 < user + 0.25
    assert system <= case.cpu - case.user + 0.05 < system + 0.25


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("import sys\nsys.exit(7)", 7, ""),
        ("import os\nos.kill(os.getpid(), 11)", -11, ""),
        ("raise KeyError('x')", 1, "KeyError"),
    ],
)
def test_how_a_case_ended(program: str, code: int, said: str) -> None:
    case = wire.decode_results(run_harness(program, [""]), KEY).cases[0]
    assert case.exit_code == code
    assert said in case.stderr


def test_a_program_that_does_not_compile() -> None:
    result = wire.decode_results(run_harness("a = = 1", ["1", "2"]), KEY)
    assert (result.compiled, result.end, result.cases) == ("error", "compile", {})
    assert "SyntaxError" in result.compile_output


def test_results_that_are_whole(written: Written) -> None:
    result = wire.decode_results(written.data, KEY)
    assert result.end == "done"
    assert len(written.records) == 6
    assert [case.stdout for case in result.cases.values()] == [b"one", b"", b"three\n", b"4"]


@given(st.data())
def test_results_that_are_cut(written: Written, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(written.data)))
    whole = sum(end <= length for end in written.ends)
    assert wire.decode_results(written.data[:length], KEY) == written.first(whole)


@given(st.data())
def test_a_byte_that_is_another(written: Written, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(written.data) - 1))
    damaged = bytearray(written.data)
    damaged[place] ^= data.draw(st.integers(1, 255))
    whole = sum(end < place for end in written.ends)
    if place in written.ends:
        whole = len(written.ends)  # what is between two records is part of neither
    assert wire.decode_results(bytes(damaged), KEY) == written.first(whole)


@given(st.data())
def test_a_record_that_is_left_out(written: Written, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(written.records) - 1))
    left = written.records[:number] + written.records[number + 1 :]
    assert wire.decode_results(b"".join(left), KEY) == written.first(number)


@given(st.data())
def test_a_record_that_is_there_twice(written: Written, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(written.records) - 1))
    again = data.draw(st.integers(number + 1, len(written.records)))
    records = list(written.records)
    records.insert(again, records[number])
    assert wire.decode_results(b"".join(records), KEY) == written.first(again)


@given(st.data())
def test_records_in_another_order(written: Written, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(written.records))))
    whole = next((n for n, number in enumerate(order) if n != number), len(order))
    shuffled = b"".join(written.records[number] for number in order)
    assert wire.decode_results(shuffled, KEY) == written.first(whole)


@given(st.data())
def test_a_record_of_somebody_else(written: Written, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(written.records)))
    foreign = data.draw(
        st.binary(min_size=1) | st.just(b"case 9 0 1 1 1 1 - 0 0 %s\n\n" % (b"0" * 32))
    )
    records = [*written.records[:number], foreign, *written.records[number:]]
    assert wire.decode_results(b"".join(records), KEY) == written.first(number)


def test_the_same_call_with_another_key_says_nothing(written: Written) -> None:
    other = run_harness(ECHO, ["one", "", "three\n", "4"], secrets.token_bytes(32))
    assert wire.decode_results(other, KEY) == CallResult()
    mixed = b"".join(written.records[:2]) + other[written.ends[1] + 1 :]
    assert wire.decode_results(mixed, KEY) == written.first(2)


@given(st.binary(), st.binary(min_size=1, max_size=64))
def test_anything_can_be_read_and_says_nothing(data: bytes, key: bytes) -> None:
    assert wire.decode_results(data, key) == CallResult()


@given(st.lists(st.text(st.characters(exclude_characters=" \n"), max_size=8), max_size=8))
def test_a_record_that_makes_no_sense_ends_them(words: list[str]) -> None:
    """As a harness gone wrong might write it, with the right key."""
    with tempfile.TemporaryDirectory() as folder:
        results = ResultsFile(f"{folder}/{wire.RESULTS}", KEY)
        results.add("case", 0, 0, 1, 1, 1, 1, "-", out=b"x")
        results.add("case", *(word.encode("utf-8", "replace").decode() for word in words))
        decoded = wire.decode_results(results.text, KEY)
    assert decoded.cases[0].stdout == b"x"


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1e4))
def test_a_call_may_take_what_its_parts_may(wall: float, compiling: float, budget: float) -> None:
    limits = CaseLimits(
        cpu=1, wall=wall, compile=compiling, budget=budget, memory=1, output=1, processes=1
    )
    assert limits.call > wall + compiling + budget


def test_a_case_leaves_no_note_in_the_program() -> None:
    """On a file system in memory, a shared mapping changes a file without its time stamps."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = CaseFolder(name, "python", ECHO.encode(), None)
        folder.restore()
        before = folder.now()
        program = Path(folder.program)
        with program.open("r+b") as file, mmap.mmap(file.fileno(), 0) as text:
            assert text[:6] == b"import"  # a page that was read is written unnoticed
            text[:6] = b"note  "
        assert before is not None
        assert folder.now() != before
        folder.restore()
        assert program.read_bytes() == ECHO.encode()


def test_a_case_that_was_reaped_is_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is gone, and with it the time that it waited for a processor."""
    with tempfile.TemporaryDirectory() as folder:
        forked = memory_file(folder, "pid")
        requests, _other = socket.socketpair()
        replies_out, replies_in = os.pipe()
        supervisor = Supervisor(folder, None, forked, requests, replies_out, 0, [])
        supervisor.spec = RunSpec(
            wire.encode_spec(KEY, "python", replace(LIMITS, cpu=0.01, wall=0.01), []).encode()
        )
        with subprocess.Popen(["true"]) as ended:
            ended.wait()
        os.pwrite(supervisor.forked, b"%d" % ended.pid, 0)
        killed: list[int] = []
        monkeypatch.setattr(supervisors, "kill_group", killed.append)
        assert supervisor.wait(time.monotonic() - 1) is None
        assert killed == []
        for fd in (forked, replies_out, replies_in):
            os.close(fd)


def test_what_stands_on_both_sides_is_the_same() -> None:
    """The case runner imports nothing of the judge's side."""
    assert supervisors.STRETCH == wire.STRETCH


def imports(text: str) -> set[str]:
    """The modules of this project that a module imports, except for its types alone."""
    nodes = [
        node
        for statement in ast.parse(text).body
        if not (isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING")
        for node in ast.walk(statement)
    ]
    found = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            inner = f"{node.module}."
            found |= (
                {inner + name.name for name in node.names}
                if inner == "shared.harness."
                else {inner[:-1]}
            )
    return {name for name in found if name.startswith(("shared", "services", "tests", "tools"))}


def test_modules_in_the_sandbox_import_those_before_them() -> None:
    """It has no others, and makes modules of them in this order."""
    texts = harness_sources(functions=True)
    late = ("shared.harness.function_case", "shared.harness.function_server")
    known = set()
    for name, text in texts.items():
        ast.parse(text, feature_version=(3, 8))
        # Those two are imported when there are function tests.
        assert imports(text) - set(late) <= known, name
        known.add(name)
    assert [*texts][: len(harness_sources(functions=False))] == [*harness_sources(functions=False)]
    folder = Path(supervisors.__file__).parent.parent
    for package in (folder / "cases", folder / "function_values"):
        for file in package.glob("*.py"):
            name = f"shared.harness.{package.name}.{file.stem}".replace(".__init__", "")
            assert texts[name] == file.read_text(encoding="utf-8")
