"""Answers in C++: compile errors, limits of the compiler and of the program."""

import shutil
from collections.abc import Awaitable, Callable

import pytest

from services.judge.judging import limits_of
from services.judge.sandbox import SandboxClient
from shared.config import load_config
from shared.schemas import ProblemInfo, Verdict
from shared.statuses import FinalStatus
from tests.judge.tasks import judge_code, stdio
from tests.shared.ledgers import problem

needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="this machine has no g++")
JudgeCpp = Callable[[str], Awaitable[Verdict]]


@pytest.fixture
def judge(sandbox: SandboxClient) -> JudgeCpp:
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
async def test_a_compiler_cannot_be_made_to_take_everything(judge: JudgeCpp, name: str) -> None:
    verdict = await judge(COMPILER_BOMBS[name])
    assert verdict.final_status is FinalStatus.SYNTAX_ERROR
    assert verdict.first_failed_case is not None
    assert len(verdict.first_failed_case.stderr or "") <= 4096
    assert not verdict.infra_failures
    assert (await judge("#include <cstdio>\nint main() { putchar('1'); }")).accepted


@needs_cpp
async def test_recursion_as_deep_as_contests_allow(judge: JudgeCpp) -> None:
    code = """\
#include <cstdio>
int depth(int n) {
    volatile char local[64];
    local[n % 64] = 0;
    return n ? depth(n - 1) + 1 + local[n % 64] : 0;
}
int main() { printf("%d", depth(500000) / 500000); }"""
    assert (await judge(code)).accepted


# Limits of a problem


def limits(info: ProblemInfo, *overrides: str) -> tuple[float, int]:
    config = load_config(None, ["sandbox.timeout=10", "sandbox.memory_limit_mb=512", *overrides])
    given = problem(extra_info=info.model_dump_json())
    found = limits_of(given, config.judge.for_dataset(given.dataset), config.sandbox)
    return found.timeout, found.memory_limit_mb


OWN = "judge.problem_limits=true"
KNOWN = ProblemInfo(time_limit=2.5, memory_limit=256_000_000)


def test_the_limits_of_a_problem_count_on_request() -> None:
    assert limits(KNOWN) == (10, 512)
    assert limits(KNOWN, OWN) == (2.5, 245 + 64)
    assert limits(KNOWN, "judge.datasets={d1: {problem_limits: true}}") == (2.5, 245 + 64)
    assert limits(KNOWN, OWN, "judge.datasets={d1: {problem_limits: false}}") == (10, 512)


def test_limits_that_a_problem_does_not_have() -> None:
    for seconds in (None, 0, -1, float("inf"), float("nan")):
        assert limits(ProblemInfo(time_limit=seconds, memory_limit=0), OWN) == (10, 512), seconds
