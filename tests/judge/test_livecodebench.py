"""Our verdicts are those of LiveCodeBench's own evaluator, except where a difference is named."""

import json

import pytest

from services.judge.sandbox import SandboxClient
from tests.judge.livecodebench import SECONDS, VERDICTS, answers
from tests.judge.tasks import judge_code, together, with_tests

# Ways of answering that have another verdict here (docs/judging.md has why), with that verdict.
NAMED = {
    "call/future": "success",
    "call/state": "success",
    "program/future": "success",
    "program/global": "success",
    "program/guard first": "success",
    "program/open": "success",
    "program/exits with 1": "runtime_error",
}
ORDINARY = ("call/pairs/", "call/mean/", "program/sum/")


@pytest.mark.parametrize("ordinary", [True, pytest.param(False, marks=pytest.mark.nightly)])
async def test_verdicts_are_those_of_livecodebench(sandbox: SandboxClient, ordinary: bool) -> None:
    theirs = json.loads(VERDICTS.read_text(encoding="utf-8"))
    given = {one.name: one for one in answers()}
    assert set(theirs) == set(given)
    given = {name: one for name, one in given.items() if name.startswith(ORDINARY) is ordinary}

    async def status(name: str) -> str:
        answer = given[name]
        made = with_tests(**answer.tests.model_dump(mode="json", exclude_none=True))
        verdict = await judge_code(sandbox, made, answer.code, f"sandbox.timeout={SECONDS}")
        found = verdict.final_status.value
        return "runtime_error" if found == "syntax_error" else found

    ours = await together(given, status)
    wrong = {}
    for name in given:
        kind, _, way = name.split("/")
        right = NAMED.get(f"{kind}/{way}", theirs[name])
        if ours[name] != right:
            wrong[name] = ours[name], right
    assert wrong == {}
