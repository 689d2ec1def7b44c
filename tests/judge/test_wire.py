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

from shared.harness import cases, wire
from shared.harness.sources import harness_sources
from shared.harness.wire import CallResult, CaseLimits
from tests.judge.local import place_harness

ECHO = "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())\nprint('ä', file=sys.stderr)"
LIMITS = CaseLimits(cpu=10, wall=40, compile=10, budget=60, memory=2**30, output=2**20)
KEY = secrets.token_bytes(32)


def run_harness(program: str, inputs: Sequence[str]) -> bytes:
    """The results file of a call, made on this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder, texts = Path(name), [text.encode() for text in inputs]
        main, rest = place_harness(folder, program.encode(), texts, LIMITS)
        order = KEY.hex().encode() + rest
        subprocess.run([sys.executable, str(main)], input=order, cwd=folder, check=True, timeout=60)
        return (folder / wire.RESULTS).read_bytes()


@pytest.fixture(scope="module")
def written() -> bytes:
    return run_harness(ECHO, ["one", "", "three\n", "4"])


# A line that looks like a record, in case anything believes it.
TEXT = st.text() | st.sampled_from(["\0", "\r\n", "case 0 0 1 1 1 1 - 0 0\n", "end done 0 0\n"])


@settings(max_examples=8)
@given(st.lists(TEXT, min_size=1, max_size=5))
def test_each_case_gets_its_input_and_its_output_comes_back(inputs: list[str]) -> None:
    result = wire.decode_results(wire.verified(run_harness(ECHO, inputs), KEY))
    assert (result.compiled, result.end) == ("ok", "done")
    assert list(result.cases) == list(range(len(inputs)))
    for place, text in enumerate(inputs):
        case = result.cases[place]
        assert (case.stdout, case.stderr) == (text.encode(), "ä\n")
        assert (case.exit_code, case.limit) == (0, None)


@given(st.data())
def test_records_that_are_cut(written: bytes, data: st.DataObject) -> None:
    records = wire.verified(written, KEY)
    result = wire.decode_results(records)
    length = data.draw(st.integers(0, len(records) - 1))
    part = wire.decode_results(records[:length])
    assert part.end is None
    assert part.cases == {place: result.cases[place] for place in part.cases}


@given(st.data())
def test_a_byte_that_is_another(written: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(written) - 1))
    damaged = bytearray(written)
    damaged[place] ^= data.draw(st.integers(1, 255))
    assert wire.verified(bytes(damaged), KEY) == b""


@given(st.binary())
def test_results_of_another_writer_say_nothing(written: bytes, data: bytes) -> None:
    for results in (data, written + data + b"x", written[: len(data)]):
        assert wire.decode_results(wire.verified(results, KEY)) == CallResult()
    assert wire.verified(written, secrets.token_bytes(32)) == b""


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
    late = {"shared.harness.functions", "shared.harness.function_server"}
    known = set()
    for name, text in texts.items():
        ast.parse(text, feature_version=(3, 8))
        # Those two are imported when there are function tests.
        assert imports(text) - late <= known, name
        known.add(name)
    assert [*texts][: len(harness_sources(functions=False))] == [*harness_sources(functions=False)]
    folder = Path(cases.__file__).parent.parent
    for file in (folder / "cases").glob("*.py"):
        name = f"shared.harness.cases.{file.stem}".replace(".__init__", "")
        assert texts[name] == file.read_text(encoding="utf-8")
