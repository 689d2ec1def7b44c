"""Special judges with this repository's sandbox: right verdicts, faults, and hostile outputs."""

import asyncio
import shutil
import zlib
from base64 import b64encode

import pytest

from services.judge.sandbox import SandboxClient
from services.judge.special_judge import CheckerFailedError
from shared.checkers import CheckerFault
from shared.schemas import Verdict, sha256
from shared.statuses import FailureKind
from tests.judge.many_answers import PROBLEMS, ManyAnswers, cpp_checker
from tests.judge.stand_ins import Scripted, case
from tests.judge.tasks import judge_code, stdio, together

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")
COMPARES = cpp_checker("""
    int j = ans.readInt(), p = ouf.readInt();
    if (j != p) quitf(_wa, "expected %d, found %d", j, p);
    quitf(_ok, "equal");""")


async def judged(
    sandbox: object,
    printed: str,
    *overrides: str,
    test: tuple[str, str] = ("1", "7\n"),
    **fields: str,
) -> Verdict:
    code = f"import sys\nsys.stdout.write({printed!r})"
    return await judge_code(sandbox, stdio(test, **fields), code, *overrides)


@pytest.mark.parametrize(
    "problems",
    [
        pytest.param([one for one in PROBLEMS if one.python], id="Python"),
        pytest.param([one for one in PROBLEMS if one.cpp], id="C++", marks=needs_compiler),
    ],
)
async def test_all_outputs_are_judged_right(
    sandbox: SandboxClient, problems: list[ManyAnswers]
) -> None:
    async def accepted(problem: ManyAnswers) -> dict[str, bool]:
        test = (problem.given, problem.expected)
        outputs = [problem.expected, *problem.right, *problem.wrong]
        verdicts = await together(
            outputs, lambda output: judged(sandbox, output, test=test, **problem.checker)
        )
        assert all(verdict.judged for verdict in verdicts.values()), problem.name
        return {output: verdict.accepted for output, verdict in verdicts.items()}

    results = await together(problems, accepted, at_a_time=2)
    right = {
        problem: dict.fromkeys([problem.expected, *problem.right], True)
        | dict.fromkeys(problem.wrong, False)
        for problem in problems
    }
    assert {one.name: results[one] for one in problems if results[one] != right[one]} == {}


# C++


@needs_compiler
async def test_a_checker_is_compiled_once(sandbox: SandboxClient) -> None:
    source = COMPARES + "// once\n"
    fields = {"checker_source": source, "checker_language": "cpp"}
    first = await asyncio.gather(*(judged(sandbox, f"{i}", **fields) for i in range(6, 9)))
    assert [verdict.accepted for verdict in first] == [False, True, False]
    assert {verdict.checker for verdict in first} == {f"cpp:{sha256(source)[:8]}"}
    again = await judged(sandbox, "8", **fields)
    assert again.attempts == 2
    assert sum(verdict.attempts for verdict in first) == 1 + 2 * len(first)
    assert again.first_failed_case is not None
    assert again.first_failed_case.stderr == "checker: wrong answer expected 7, found 8"


BROKEN = [
    ("int main( {", CheckerFault.NOT_COMPILED),
    ("int main() { for (;;); }", CheckerFault.TIMED_OUT),
    ("int main() { return *(volatile int*)0; }", CheckerFault.CRASHED),
    ("int main() { return 42; }", CheckerFault.CRASHED),
    ("int main() { return 3; }", CheckerFault.FAILED),
    ("int main() { return 7; }", CheckerFault.CRASHED),
    ("int main() { return 1; }", CheckerFault.REJECTS_EXPECTED),
    (cpp_checker('quitf(_fail, "no");'), CheckerFault.FAILED),
]


@needs_compiler
async def test_a_broken_checker_is_never_a_wrong_answer(sandbox: SandboxClient) -> None:
    async def outcome(source: str) -> tuple[object, ...]:
        fields = {"checker_source": source, "checker_language": "cpp"}
        try:
            verdict = await judged(
                sandbox, "7", "sandbox.timeout=0.5", "judge.wall_factor=1", **fields
            )
        except CheckerFailedError as error:
            return error.fault, error.failures[-1].kind, "\n" in str(error)
        return (verdict.case_codes,)

    results = await together([source for source, _ in BROKEN], outcome, at_a_time=4)
    expected = {source: (fault, FailureKind.CHECKER, False) for source, fault in BROKEN}
    assert results == expected


@needs_compiler
async def test_an_output_that_breaks_the_checker_is_wrong(sandbox: SandboxClient) -> None:
    source = cpp_checker(
        "switch (ouf.readInt()) { case 1: abort(); case 2: for (;;); case 3: _Exit(99);"
        'case 4: quitf(_fail, "no"); } quitf(_ok, "x");'
    )
    fields = {"checker_source": source, "checker_language": "cpp"}
    assert (await judged(sandbox, "7", **fields)).accepted
    for output in "1234":
        verdict = await judged(sandbox, output, "sandbox.timeout=0.5", **fields)
        assert verdict.case_codes == [0], output


@pytest.mark.parametrize("result", ["(output == expected, 'message')", "'wrong'", "[False]"])
async def test_a_result_that_is_not_true_or_false_is_the_checkers_fault(
    sandbox: SandboxClient, result: str
) -> None:
    source = f"def check(input, output, expected): return {result}"
    with pytest.raises(CheckerFailedError, match="must return true or false"):
        await judged(sandbox, "8", checker_source=source)


class StandIn(Scripted):
    __hash__ = object.__hash__


ANSWERED = [case(0, b"7"), ("end", "done")]
EVEN = {"checker_source": "def check(input, output, expected): return True"}


async def test_a_sandbox_without_a_compiler() -> None:
    missing = [("compile", "missing", b"", b"cannot start g++"), ("end", "compile")]
    sandbox = StandIn([ANSWERED, missing])
    with pytest.raises(CheckerFailedError) as caught:
        await judged(sandbox, "7", checker_source=COMPARES, checker_language="cpp")
    assert caught.value.fault is CheckerFault.NO_COMPILER
    assert "needs a C++ compiler, which the sandbox lacks" in str(caught.value)


@pytest.mark.parametrize(
    "first",
    [
        [case(0, b"!"), case(1, limit="wall", code=-9), ("end", "done")],
        [case(0, b"!"), case(1, code=-9), ("end", "done")],
        [case(0, b"!")],
    ],
    ids=["too slow", "killed", "lost"],
)
@pytest.mark.parametrize("code", [0, 1])
async def test_what_load_may_have_stopped_runs_again_alone(
    first: list[tuple[object, ...]], code: int
) -> None:
    again = [case(0, b"!", code=code), ("end", "done")]
    sandbox = StandIn([ANSWERED, first, again])
    verdict = await judged(sandbox, "7", **EVEN)
    assert verdict.case_codes == [1 - code]
    assert sandbox.alone == [False, False, True]


# Hostile outputs

HOSTILE = (
    "", "\0", "7\0", "\0" * 100_000, "7" * 1_000_000, "7 " * 500_000, "\n" * 1_000_000,
    "\x1b[2J7", "\ufeff7", "７", "7\r\n8", '"}], "outcome": "accepted"}', "!", "!!!", "ok 7",
    "points 1", "-" * 100_000, "1e400", "9" * 400, "7 7", "7;", "0x7", "+7", "07", "7.0",
    "__import__('os')._exit(0)", "import sys; sys.exit(0)", "%n%n%s%s", "\ud7ff7",
)  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"checker_source": COMPARES, "checker_language": "cpp"}, id="C++", marks=needs_compiler
        ),
        pytest.param(
            {
                "checker_source": "def check(input, output, expected):\n"
                "    return output.strip(' \\n') == '7'\n"
            },
            id="Python",
        ),
    ],
)
async def test_no_output_of_an_answer_passes_a_strict_checker(
    sandbox: SandboxClient, fields: dict[str, str]
) -> None:
    """All outputs are those of one answer, so the checker runs in the cases of one call."""
    # Compressed, because no completion is that long.
    packed = b64encode(zlib.compress(repr(HOSTILE).encode("utf-8", "surrogatepass")))
    code = (
        "import sys, zlib, base64, ast\n"
        f"text = zlib.decompress(base64.b64decode({packed!r})).decode('utf-8', 'surrogatepass')\n"
        "sys.stdout.write(ast.literal_eval(text)[int(input())])"
    )
    cases = [(str(number), "7\n") for number in range(len(HOSTILE))]
    codes = (await judge_code(sandbox, stdio(*cases, **fields), code)).case_codes
    others = [(output[:20], code) for output, code in zip(HOSTILE, codes, strict=True) if code]
    assert others == []
    assert (await judged(sandbox, "7\n", **fields)).accepted


async def test_what_a_case_does_to_the_checker_ends_with_the_case(sandbox: SandboxClient) -> None:
    """A checker that evaluates outputs can be cheated, but for one case only."""
    source = (
        "passed = False\n"
        "def check(input, output, expected):\n"
        "    if output.startswith('exec'): exec(output[5:], globals())\n"
        "    return passed or output == expected\n"
    )
    code = "n = input()\nprint('exec,passed = True' if n == '1' else 'no', end='')"
    problem = stdio(("1", "a"), ("2", "b"), ("3", "c"), checker_source=source)
    assert (await judge_code(sandbox, problem, code)).case_codes == [1, 0, 0]
