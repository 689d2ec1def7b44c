"""Languages beside Python, as far as this machine has their toolchains."""

import shutil
from pathlib import Path

import pytest

from services.sandbox.runner import installed, refusal
from shared.harness.languages import LANGUAGES
from tests.sandbox.conftest import Sandbox, StartSandbox

# Where programs in a sandbox find commands.
PATH = "/usr/local/bin:/usr/bin:/bin"


def needs(command: str) -> pytest.MarkDecorator:
    missing = shutil.which(command, path=PATH) is None
    return pytest.mark.skipif(missing, reason=f"no {command} on this machine")


HUNGRY_NODE = "const all = []; for (;;) all.push(new Array(1e6).fill(1.5))"
BUFFERS = "const all = []; for (let i = 0; i < 60; i++) all.push(Buffer.alloc(1e8, 1))"
HUNGRY_JAVA = """\
class Main {
    public static void main(String[] arguments) {
        var all = new java.util.ArrayList<long[]>();
        for (;;) all.add(new long[1_000_000]);
    }
}"""


@pytest.mark.parametrize(
    ("language", "code", "words"),
    [
        pytest.param("nodejs", HUNGRY_NODE, "heap", marks=needs("node"), id="heap"),
        pytest.param("nodejs", BUFFERS, "allocation failed", marks=needs("node"), id="buffers"),
        pytest.param("java", HUNGRY_JAVA, "OutOfMemoryError", marks=needs("javac"), id="java"),
    ],
)
@pytest.mark.parametrize("limit", [128, pytest.param(-1, marks=pytest.mark.nightly)])
async def test_memory_is_limited_where_the_address_space_is_not(
    sandbox: Sandbox, language: str, code: str, words: str, limit: int
):
    answer = await sandbox.run(
        code, language, compile_timeout=60, run_timeout=60, memory_limit_MB=limit
    )
    assert answer["run_result"]["status"] == "Finished"
    assert answer["run_result"]["return_code"] != 0
    assert words in answer["run_result"]["stderr"]


@needs("node")
async def test_javascript_is_not_compiled(sandbox: Sandbox):
    for code, end in (("console.log(1)", ("Success", 0, "1\n")), ("x = (", ("Failed", 1, ""))):
        answer = await sandbox.run(code, "nodejs")
        result = answer["run_result"]
        assert answer["compile_result"] is None
        assert (answer["status"], result["return_code"], result["stdout"]) == end


async def test_a_language_without_its_toolchain_is_our_trouble(start_sandbox: StartSandbox):
    sandbox = await start_sandbox()
    known = (await sandbox.ready())["languages"]
    assert known[:2] == ["python", "bash"]
    answer = await sandbox.run("x", "scala")
    assert answer["status"] == "SandboxError"
    assert answer["message"] == f"this server does not run 'scala', only {', '.join(known)}"


def test_a_refusal_names_the_packages():
    assert "install default-jdk-headless" in refusal("java", "/nowhere")


def test_a_name_that_no_file_can_have_is_left_to_the_compiler():
    assert LANGUAGES["java"].file_of("public class Ä {}") == "Ä.java"
    assert LANGUAGES["java"].file_of(f"public class {'Ä' * 130} {{}}") == "Main.java"


def test_only_installed_toolchains_are_offered(tmp_path: Path):
    for name in ("java", "node", "rustc"):
        (tmp_path / name).touch(mode=0o755)
    found = installed(str(tmp_path))
    assert found == ["python", "bash", "nodejs"]
