"""Wire format of the harness: its output, and the validation of its output."""

import ast
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.harness import wire
from shared.harness.cases import supervisor as supervisors
from shared.harness.sources import harness_sources
from shared.harness.wire import CallResult, CaseLimits
from tests.judge.local import place_harness

ECHO = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())\nprint('ä', file=sys.stderr)"
LIMITS = CaseLimits(cpu=10, wall=40, compile=10, budget=60, memory=2**30, output=2**20)
KEY = secrets.token_bytes(32)


def run_harness(program: str, inputs: Sequence[str], key: bytes = KEY) -> bytes:
    """The results file of a call, made on this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        main = place_harness(folder, program.encode())
        order = wire.encode_spec(key, "python", LIMITS, inputs).encode()
        subprocess.run([sys.executable, str(main)], input=order, cwd=folder, check=True, timeout=60)
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
    late = {"shared.harness.function_case", "shared.harness.function_server"}
    known = set()
    for name, text in texts.items():
        ast.parse(text, feature_version=(3, 8))
        # Those two are imported when there are function tests.
        assert imports(text) - late <= known, name
        known.add(name)
    assert [*texts][: len(harness_sources(functions=False))] == [*harness_sources(functions=False)]
    folder = Path(supervisors.__file__).parent.parent
    for file in (folder / "cases").glob("*.py"):
        name = f"shared.harness.cases.{file.stem}".replace(".__init__", "")
        assert texts[name] == file.read_text(encoding="utf-8")
