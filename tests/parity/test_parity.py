"""Parity of our ``compute_score`` with verl's, run by run in the same sandbox.

``DIFFERENCES`` is where the sample's status is meant to say more than verl's codes do. A sandbox
that fails makes a case -1 in verl, and no verdict here. All else has to be the same.
"""

import asyncio
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judge.methods.fusion import single_outcome
from shared.checkers import exact
from shared.extraction import extract_verl
from shared.harness.sandbox_api import RunCodeResponse
from shared.schemas import Verdict
from shared.statuses import CASE_STATUS, CaseCode, FinalStatus, aggregate_cases
from tests.bench.judges import client
from tests.judge.tasks import fenced, together
from tests.parity.cases import ECHO, Answer, answers, compiled, scripts, stdio
from tests.parity.scorer import Found, Scorer, judge
from tests.parity.stand_in import ANSWERS, stand_in

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
    async with client(url) as sandbox:

        async def both(name: str) -> Pair:
            theirs = await asyncio.to_thread(scorer.score, url, ALL[name])
            return Pair(theirs, await judge(sandbox, ALL[name]))

        pairs = await together([name for name in ALL if name not in _ALONE], both, 4)
        return pairs | await together(_ALONE, both, 1)


def test_there_are_answers_of_every_kind(pairs: dict[str, Pair]) -> None:
    assert {code for pair in pairs.values() for code in pair.verl.codes} == {1, 0, -2, -3}
    assert {pair.ours.final_status for pair in pairs.values()} == set(FinalStatus) - {
        FinalStatus.EMPTY_OUTPUT,
        FinalStatus.API_ERROR,
    }
    for difference in DIFFERENCES:
        assert any(difference.applies(pair) for pair in pairs.values()), difference.name


def test_the_same_verdict(pairs: dict[str, Pair]) -> None:
    assert _differing(pairs) == {}
    assert {name: pair.ours.cases_total for name, pair in pairs.items()} == {
        name: ALL[name].tests.cases for name in pairs
    }


def _differing(pairs: Mapping[str, Pair]) -> dict[str, object]:
    """Return what we make of an answer and what verl makes of it, where they do not agree."""
    made = {name: (_ours(pair.ours), _theirs(pair)) for name, pair in pairs.items()}
    return {name: pair for name, pair in made.items() if pair[0] != pair[1]}


def _ours(verdict: Verdict) -> tuple[object, ...]:
    statuses = [CASE_STATUS[CaseCode(code)] for code in verdict.case_codes]
    return verdict.case_codes, statuses, verdict.pass_ratio, verdict.final_status


def _theirs(pair: Pair) -> tuple[object, ...]:
    verl = pair.verl
    return list(verl.codes), verl.statuses, verl.score, _expected_status(pair)


def _expected_status(pair: Pair) -> FinalStatus:
    meant = [difference.status for difference in DIFFERENCES if difference.applies(pair)]
    return meant[0] if meant else aggregate_cases([CaseCode(code) for code in pair.verl.codes])


async def test_the_same_verdict_on_cpp(scorer: Scorer, sandbox_url: str) -> None:
    if shutil.which("g++") is None:
        pytest.skip("this machine has no g++")
    async with client(sandbox_url) as sandbox:

        async def both(number: int) -> Pair:
            code, tests = compiled()[number]
            answer = Answer("cpp", f"```cpp\n{code}\n```", tests)
            theirs = await asyncio.to_thread(scorer.check, sandbox_url, code, tests, "cpp")
            return Pair(theirs, await judge(sandbox, answer, "judge.language=cpp"))

        pairs = await together(range(len(compiled())), both, 4)
    assert _differing({f"program {number}": pair for number, pair in pairs.items()}) == {}


# A program, its cases, and those that pass, by place; verl's default reward counts the first ten.
_SOMETIMES = "print(1 // (int(input()) % 4))"
_UNFINISHED = "print(input()"
_REWARDED: list[tuple[str, int, Sequence[int]]] = [
    (ECHO, 15, range(15)),
    (ECHO, 15, range(7)),
    (ECHO, 15, (0, 2, 4, 9, 10, 14)),
    (ECHO, 15, (10, 11, 12)),
    (ECHO, 10, range(7)),
    (ECHO, 3, (0, 2, 4, 9, 10, 14)),
    (_SOMETIMES, 15, range(15)),
    (_SOMETIMES, 10, range(7)),
    (_UNFINISHED, 15, range(15)),
    (_UNFINISHED, 3, ()),
    ("x", 15, range(15)),
]


async def test_the_same_default_reward(scorer: Scorer, sandbox_url: str) -> None:
    async with client(sandbox_url) as sandbox:

        async def both(row: int) -> tuple[tuple[float, int], tuple[float, int]]:
            code, cases, passing = _REWARDED[row]
            tests = stdio(*((f"{i}\n", f"{i}\n" if i in passing else "x") for i in range(cases)))
            answer = Answer("reward", code if code == "x" else fenced(code), tests)
            theirs = await asyncio.to_thread(scorer.reward, sandbox_url, answer)
            ours = await judge(sandbox, answer, "judge.max_cases=10")
            return (ours.pass_ratio, ours.cases_total), (theirs, min(cases, 10))

        rewards = await together(range(len(_REWARDED)), both, 4)
    assert [
        (_REWARDED[row], ours, theirs) for row, (ours, theirs) in rewards.items() if ours != theirs
    ] == []


def _agree(pair: Pair) -> bool:
    return (
        pair.ours.case_codes == list(pair.verl.codes)
        and [CASE_STATUS[CaseCode(code)] for code in pair.ours.case_codes] == pair.verl.statuses
        and pair.ours.pass_ratio == pair.verl.score
    )


# Answers of the sandbox that are made up


async def test_a_compile_error_spreads_in_the_same_way(scorer: Scorer) -> None:
    differing = []
    seen: set[int] = set()
    async with (
        stand_in() as server,
        client(url := str(server.make_url("")).rstrip("/")) as sandbox,
    ):
        for tests in scripts(20, list(ANSWERS)):
            answer = Answer("script", fenced(ECHO), tests)
            theirs = await asyncio.to_thread(scorer.score, url, answer)
            if not _agree(Pair(theirs, await judge(sandbox, answer))):
                differing.append(tests.inputs)
            seen |= set(theirs.codes)
    assert differing == []
    assert seen == {1, 0, -1, -2, -3, -4}


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


def test_the_same_code_for_every_answer(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    differing = [
        (answer, *codes)
        for answer in _responses()
        if (codes := _codes(scorer, monkeypatch, answer))[0] != codes[1]
    ]
    assert differing == []


def _codes(scorer: Scorer, patch: pytest.MonkeyPatch, answer: dict[str, Any]) -> tuple[int, int]:
    patch.setattr(scorer.utils, "call_sandbox_api", lambda **_: (answer, None))
    results, _ = scorer.utils._process_single_case(0, "in", "x", "url", "code", 1, 1, "python")
    return int(results), int(
        single_outcome(RunCodeResponse.model_validate(answer), "in", "x", exact).code
    )


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
