"""Programs in every language of the table whose toolchain is installed: statuses and limits."""

from collections.abc import Awaitable, Callable, Iterator

import pytest

from services.judge.sandbox import SandboxClient
from shared.harness.languages import LANGUAGES, PROGRAMS
from shared.schemas import Verdict
from shared.statuses import FinalStatus
from tests.judge.language_programs import KINDS, LARGE, SMALL, expected, is_installed, program
from tests.judge.pools import OpenPool
from tests.judge.tasks import judge_code, stdio, together
from tests.sandbox.conftest import needs_cpp
from tests.sandbox.installations import python_for
from tests.sandboxes import own_sandbox, rungs

INSTALLED = [name for name in PROGRAMS if is_installed(name)]
QUICK = ("right", "wrong", "compile error", "memory-hungry", "exit code")
# A case that is not killed for its time may take this long on a busy machine.
OVERRIDES = ("judge.confirm_timeouts=false", "sandbox.memory_limit_mb=256", "judge.max_output_mb=1")


async def judge(sandbox: SandboxClient, language: str, kind: str, code: str) -> Verdict:
    late = expected(language, kind)[0] is FinalStatus.TIMEOUT
    tests = stdio(SMALL, LARGE) if kind == "right" else stdio(SMALL)
    seconds = f"sandbox.timeout={1 if late else 20}"
    options = (*OVERRIDES, f"judge.language={language}", seconds)
    label = LANGUAGES[language].labels[0]
    return await judge_code(sandbox, tests, code, *options, language=label)


async def check(sandbox: SandboxClient, kinds: tuple[str, ...]) -> None:
    async def one(pair: tuple[str, str]) -> Verdict:
        language, kind = pair
        return await judge(sandbox, language, kind, program(language, kind))

    pairs = [(language, kind) for language in INSTALLED for kind in kinds]
    verdicts = await together(pairs, one, 2)
    found = {pair: (verdict.final_status, verdict.detail) for pair, verdict in verdicts.items()}
    wrong = {
        pair: (status, detail)
        for pair, (status, detail) in found.items()
        if status is not expected(*pair)[0] or expected(*pair)[1] not in (None, detail)
    }
    assert not wrong, [verdicts[pair].first_failed_case for pair in wrong]


async def test_statuses_and_limits(sandbox: SandboxClient) -> None:
    await check(sandbox, QUICK)


@pytest.fixture(params=rungs("bwrap", "landlock", "none"), scope="module")
def url_of_rung(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("rung")
    kind = request.param
    variables = {
        "PLUMBLINE_SANDBOX_ISOLATION": kind,
        "PLUMBLINE_SANDBOX_PYTHON": str(python_for(kind)),
    }
    with own_sandbox(folder, **variables) as url:
        yield url


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_every_kind_of_program_on_every_rung(url_of_rung: str) -> None:
    async with SandboxClient(OpenPool([url_of_rung]), max_attempts=2, retry_budget=30) as client:
        await check(client, tuple(KINDS))


JAVA = "%s {\n    public static void main(String[] a) { System.out.println(1); }\n}"
COMMON = {
    "imports in the same line": ("java", JAVA % "import java.util.*; public class Solution"),
    "annotation": ("java", JAVA % '@SuppressWarnings("all") final public class Solution'),
    "class in a comment": ("java", JAVA % "/*\npublic class Other {\n*/\npublic class A$B"),
    "import in a comment": ("nodejs", "/*\nimport fs from 'fs'\n*/\nrequire('fs'); console.log(1)"),
    "import in a string": ("nodejs", "`\nimport fs\n`; require('fs'); console.log(1)"),
    "import": ("nodejs", "/* ' */ 'use strict'\nimport 'fs'\nconsole.log(await 1)"),
    "no file at judges": (
        "cpp",
        '#include <cstdio>\n#ifndef ONLINE_JUDGE\n#error "reads a file"\n#endif\n'
        "int main() { putchar('1'); }",
    ),
}


@pytest.mark.parametrize("name", COMMON)
async def test_sources_as_judges_accept_them(sandbox: SandboxClient, name: str) -> None:
    language, code = COMMON[name]
    if language not in INSTALLED:
        pytest.skip(f"no toolchain of {language}")
    options = (f"judge.language={language}", "sandbox.timeout=20")
    verdict = await judge_code(sandbox, stdio(("", "1")), code, *options, language=language)
    assert verdict.accepted, verdict.first_failed_case


# Limits of the compiler, and of programs in C++


JudgeCpp = Callable[[str], Awaitable[Verdict]]


@pytest.fixture
def judge_cpp(sandbox: SandboxClient) -> JudgeCpp:
    options = ("judge.language=cpp", "sandbox.timeout=2")
    return lambda code: judge_code(sandbox, stdio(("1", "1")), code, *options, language="cpp")


COMPILER_BOMBS = {
    "recursive templates": "template<int N> struct A { A<N * 2 + 1> l; A<N * 2 + 2> r; };\n"
    "int main() { A<0> a; }",
    "endless header": '#include "/dev/urandom"\nint main() {}',
    "includes itself": '#include "solution.cpp"\nint main() {}',
    "endless data": 'asm(".incbin \\"/dev/zero\\"");\nint main() {}',
    "large program": "int a[1 << 29] = {1};\nint main() { return a[5]; }",
    "many errors": "int main() {" + "".join(f"y{i} = 1;" for i in range(5000)) + "}",
}


@needs_cpp
@pytest.mark.parametrize("name", COMPILER_BOMBS)
async def test_a_compiler_cannot_be_made_to_take_everything(judge_cpp: JudgeCpp, name: str) -> None:
    verdict = await judge_cpp(COMPILER_BOMBS[name])
    assert verdict.final_status is FinalStatus.SYNTAX_ERROR
    assert verdict.first_failed_case is not None
    assert len(verdict.first_failed_case.stderr or "") <= 4096
    assert not verdict.infra_failures
    assert (await judge_cpp("#include <cstdio>\nint main() { putchar('1'); }")).accepted


@needs_cpp
async def test_recursion_as_deep_as_contests_allow(judge_cpp: JudgeCpp) -> None:
    code = """\
#include <cstdio>
int depth(int n) {
    volatile char local[64];
    local[n % 64] = 0;
    return n ? depth(n - 1) + 1 + local[n % 64] : 0;
}
int main() { printf("%d", depth(500000) / 500000); }"""
    assert (await judge_cpp(code)).accepted
