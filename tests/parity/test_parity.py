"""Parity of our ``compute_score`` with verl's, run by run in the same sandbox.

``DIFFERENCES`` is where the sample's status is meant to say more than verl's codes do, and
``test_a_failing_sandbox_gives_no_verdict`` has the other thing that is meant to differ; all else
has to be the same.
"""

import asyncio
import importlib.util
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_fusion import RunCodeResponse

from services.judge.calls import single_outcome
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from shared.checkers import exact
from shared.errors import ConfigError
from shared.extraction import extract_verl
from shared.schemas import Verdict
from shared.statuses import CASE_STATUS, CaseCode, FinalStatus, aggregate_cases
from tests.bench.judges import client
from tests.parity.cases import ECHO, Answer, answers, compiled, fenced, found_before, scripts, stdio
from tests.parity.scorer import Found, Scorer, judge
from tests.parity.stand_in import ANSWERS, FAILURES, stand_in

ALL = {answer.name: answer for answer in answers()}
# They use up their limit, and others beside them would use it up for them.
_ALONE = [name for name in ALL if name.startswith("time-")]
_SYNTAX_ERROR = re.compile(r"^(?:Syntax|Indentation|Tab)Error: ", re.M)


@dataclass(frozen=True, slots=True)
class Pair:
    """One answer judged by verl and by us."""

    verl: Found
    ours: Verdict


@dataclass(frozen=True, slots=True)
class Difference:
    """Reasons why the status differs from verl's codes, aggregated by our rule."""

    name: str
    reason: str
    applies: Callable[[Pair], bool]
    status: FinalStatus


def _cannot_compile(pair: Pair) -> bool:
    def broken(stderr: str) -> bool:
        return bool(_SYNTAX_ERROR.search(stderr)) and "Traceback" not in stderr

    return set(pair.verl.codes) == {-2} and broken(pair.verl.metadata[0]["stderr"])


DIFFERENCES = [
    Difference(
        "python-syntax",
        "verl knows compile errors of compiled languages only; a Python program that cannot be "
        "compiled is a runtime error in its cases, here too, but the sample says what it is",
        _cannot_compile,
        FinalStatus.SYNTAX_ERROR,
    ),
    Difference(
        "no-code",
        "verl scores an answer without a fence 0.0 and judges no case; so do we, and an "
        "answer without judged cases is not reported as an infrastructure error",
        lambda pair: not pair.verl.codes,
        FinalStatus.SYNTAX_ERROR,
    ),
]


@pytest.fixture(scope="module")
def pairs(scorer: Scorer, sandbox_url: str) -> dict[str, Pair]:
    return asyncio.run(_judge_all(scorer, sandbox_url))


async def _judge_all(scorer: Scorer, url: str) -> dict[str, Pair]:
    slots = asyncio.Semaphore(4)
    pairs: dict[str, Pair] = {}

    async def both(sandbox: SandboxClient, answer: Answer) -> None:
        async with slots:
            found = await asyncio.to_thread(scorer.score, url, answer)
            pairs[answer.name] = Pair(found, await judge(sandbox, answer))

    async with client(url) as sandbox:
        together = [answer for name, answer in ALL.items() if name not in _ALONE]
        await asyncio.gather(*(both(sandbox, answer) for answer in together))
        for name in _ALONE:
            await both(sandbox, ALL[name])
    return pairs


def test_there_are_enough_answers_of_every_kind(pairs: dict[str, Pair]) -> None:
    assert len(pairs) >= 200
    assert {code for pair in pairs.values() for code in pair.verl.codes} == {1, 0, -2, -3}
    assert {pair.ours.final_status for pair in pairs.values()} == set(FinalStatus) - {
        FinalStatus.EMPTY_OUTPUT,
        FinalStatus.API_ERROR,
    }
    for difference in DIFFERENCES:
        assert any(difference.applies(pair) for pair in pairs.values()), difference.name


@pytest.mark.parametrize("name", ALL)
def test_the_same_verdict(pairs: dict[str, Pair], name: str) -> None:
    _assert_agreed(pairs[name])
    assert pairs[name].ours.cases_total == ALL[name].tests.cases


@pytest.mark.parametrize("name", found_before())
async def test_what_once_differed(scorer: Scorer, sandbox_url: str, name: str) -> None:
    answer = found_before()[name]
    found = await asyncio.to_thread(scorer.score, sandbox_url, answer)
    async with client(sandbox_url) as sandbox:
        _assert_agreed(Pair(found, await judge(sandbox, answer)))


def _assert_agreed(pair: Pair) -> None:
    assert pair.ours.case_codes == list(pair.verl.codes)
    assert [CASE_STATUS[CaseCode(code)] for code in pair.ours.case_codes] == pair.verl.statuses
    assert pair.ours.pass_ratio == pair.verl.score
    assert pair.ours.final_status is _expected_status(pair)


def _expected_status(pair: Pair) -> FinalStatus:
    meant = [difference.status for difference in DIFFERENCES if difference.applies(pair)]
    return meant[0] if meant else aggregate_cases([CaseCode(code) for code in pair.verl.codes])


@pytest.mark.parametrize("number", range(len(compiled())))
async def test_the_same_verdict_on_cpp(scorer: Scorer, sandbox_url: str, number: int) -> None:
    if shutil.which("g++") is None:
        pytest.skip("this machine has no g++")
    code, tests = compiled()[number]
    answer = Answer("cpp", f"```cpp\n{code}\n```", tests)
    found = await asyncio.to_thread(scorer.check, sandbox_url, code, tests, "cpp")
    async with client(sandbox_url) as sandbox:
        ours = await judge(sandbox, answer, "judge.language=cpp")
    _assert_agreed(Pair(found, ours))


# Cases that pass, by place; verl's default reward counts the first ten.
_PASSING = [
    range(15),
    range(7),
    range(8, 15),
    (0, 2, 4, 9, 10, 14),
    (10, 11, 12),
    (),
]


@pytest.mark.parametrize("cases", [3, 10, 15])
@pytest.mark.parametrize("passing", _PASSING, ids=str)
@pytest.mark.parametrize("code", [ECHO, "print(1 // (int(input()) % 4))", "print(input()", "x"])
async def test_the_same_default_reward(
    scorer: Scorer, sandbox_url: str, code: str, passing: Sequence[int], cases: int
) -> None:
    tests = stdio(*((f"{i}\n", f"{i}\n" if i in passing else "x") for i in range(cases)))
    completion = code if code == "x" else fenced(code)
    answer = Answer("reward", completion, tests)
    theirs = await asyncio.to_thread(scorer.reward, sandbox_url, answer)
    async with client(sandbox_url) as sandbox:
        ours = await judge(sandbox, answer, "judge.max_cases=10")
    assert ours.pass_ratio == theirs
    assert ours.cases_total == min(cases, 10)


def _agree(pair: Pair) -> bool:
    return (
        pair.ours.case_codes == list(pair.verl.codes)
        and [CASE_STATUS[CaseCode(code)] for code in pair.ours.case_codes] == pair.verl.statuses
        and pair.ours.pass_ratio == pair.verl.score
    )


# Answers of the sandbox that are made up


async def test_a_compile_error_spreads_in_the_same_way(scorer: Scorer) -> None:
    names = list(ANSWERS)
    async with (
        stand_in() as url,
        client(url, max_attempts=1, retry_budget=0) as sandbox,
    ):
        differing = []
        seen: set[int] = set()
        for tests in scripts(60, names):
            answer = Answer("script", fenced(ECHO), tests)
            found = await asyncio.to_thread(scorer.score, url, answer)
            if not _agree(Pair(found, await judge(sandbox, answer))):
                differing.append(tests.inputs)
            seen |= set(found.codes)
    assert differing == []
    assert seen == {1, 0, -1, -2, -3, -4}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failing_sandbox_gives_no_verdict(scorer: Scorer, name: str) -> None:
    """With verl the case is -1 and counts as failed; here the call is made again, and in the end
    there is no verdict: infrastructure errors never count against an answer."""
    answer = Answer("failure", fenced(ECHO), stdio(("passed", "x"), (name, "x"), ("wrong", "x")))
    async with (
        stand_in() as url,
        client(url, max_attempts=1, retry_budget=0) as sandbox,
    ):
        found = await asyncio.to_thread(scorer.score, url, answer)
        with pytest.raises(SandboxUnavailableError):
            await judge(sandbox, answer)
    assert (found.codes, found.score) == ([1, -1, 0], pytest.approx(1 / 3))


async def test_a_gateway_that_timed_out_is_asked_again(scorer: Scorer) -> None:
    answer = Answer("gateway", fenced(ECHO), stdio(("504 passed", "x"), ("wrong", "x")))
    async with (
        stand_in() as url,
        client(url) as sandbox,
    ):
        found = await asyncio.to_thread(scorer.score, url, answer)
        assert _agree(Pair(found, await judge(sandbox, answer)))
    assert found.codes == [1, 0]


def _responses() -> list[dict[str, Any]]:
    """Every answer of the sandbox that its format allows, as far as it matters here."""
    endings = product(
        ["Finished", "Error", "TimeLimitExceeded"], [0, 1, -9, None], [None, "x", "y"]
    )
    commands: list[dict[str, Any] | None] = [None]
    commands += [
        {"status": status, "return_code": code, "stdout": text, "stderr": "", "execution_time": 1}
        for status, code, text in endings
    ]
    return [
        {"status": status, "message": "", "compile_result": compiled, "run_result": run}
        for status, compiled, run in product(["Success", "Failed"], commands, commands)
    ]


def _commands_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for c in (answer["compile_result"], answer["run_result"]) if c]


def test_the_same_code_for_every_answer(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    differing = [
        (answer, *codes)
        for answer in _responses()
        if (codes := _codes(scorer, monkeypatch, answer))[0] != codes[1]
    ]
    assert differing == []


def _codes(scorer: Scorer, patch: pytest.MonkeyPatch, answer: dict[str, Any]) -> tuple[int, int]:
    patch.setattr(scorer.utils, "call_sandbox_api", lambda **_: (answer, None))
    found, _ = scorer.utils._process_single_case(0, "in", "x", "url", "code", 1, 1, "python")
    return int(found), int(single_outcome(RunCodeResponse.parse_obj(answer), "in", "x", exact).code)


_PIECES = ["```", "```python", "python", "c++", "ö", "x", " ", "\n", "\r\n", "`", "~~~", "1"]


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_the_same_code_is_extracted(scorer: Scorer, completion: str) -> None:
    taken: list[str] = []

    def keep(generation: str, **_: Any) -> tuple[list[Any], list[Any]]:
        taken.append(generation)
        return [True], [{}]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scorer.package, "check_correctness", keep)
        scorer.package.compute_score("url", None, 1, completion, {"inputs": [], "outputs": []})
    extraction = extract_verl(completion)
    assert taken == ([extraction.code] if extraction.found else [])


# verl's scorer as a method of ours

_NATIVE = "judge.verl_native=true"


@pytest.fixture
def installed(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in scorer.modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", [*list(ALL)[::7], _ALONE[0]])
async def test_verl_as_a_method(pairs: dict[str, Pair], sandbox_url: str, name: str) -> None:
    pair = pairs[name]
    async with client(sandbox_url) as sandbox:
        native = await judge(sandbox, ALL[name], _NATIVE)
    assert native.case_codes == list(pair.verl.codes)
    assert native.pass_ratio == pair.verl.score
    assert (native.method, native.attempts) == ("verl_native", len(pair.verl.codes))
    if native.case_codes:
        assert native.final_status is aggregate_cases([CaseCode(code) for code in pair.verl.codes])
        assert native.total_judge_time > 0
    else:
        assert (native.final_status, native.detail) == (FinalStatus.SYNTAX_ERROR, "no_code_block")
    ours, theirs = pair.ours.first_failed_case, native.first_failed_case
    assert (ours is None) is (theirs is None)
    if ours and theirs:
        assert (ours.input, ours.expected) == (theirs.input, theirs.expected)


@pytest.mark.usefixtures("installed")
async def test_verl_as_a_method_and_infrastructure_errors() -> None:
    native = await _scripted("passed", "server error", "wrong")
    assert native.case_codes == [1, -1, 0]
    assert native.final_status is FinalStatus.API_ERROR
    assert len(native.infra_failures) == 1
    assert "500" in str(native.infra_failures[0])


@pytest.mark.usefixtures("installed")
async def test_verl_as_a_method_and_a_compile_error() -> None:
    native = await _scripted("passed", "compiled late", "passed")
    assert native.case_codes == [1, -4, -4]
    assert native.final_status is FinalStatus.SYNTAX_ERROR
    assert native.detail == "compile_timeout"


async def _scripted(*names: str) -> Verdict:
    tests = stdio(*((name, "x") for name in names))
    async with stand_in() as url, client(url) as sandbox:
        return await judge(sandbox, Answer("script", fenced(ECHO), tests), _NATIVE)


async def test_verl_as_a_method_needs_verl() -> None:
    if importlib.util.find_spec("verl"):
        pytest.skip("verl is installed")
    answer = Answer("none", fenced(ECHO), stdio(("1", "1")))
    async with client("http://127.0.0.1:1") as sandbox:
        with pytest.raises(ConfigError, match="needs verl"):
            await judge(sandbox, answer, _NATIVE)
