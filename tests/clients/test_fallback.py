"""Rows that are not code, scored by another function than the judge."""

import asyncio
import json
import sys
from types import ModuleType
from typing import Any

import pytest
from plumbline_reward import compute_score, compute_score_sync
from plumbline_reward.rows import is_code

from tests.clients.stand_in import Server

REFERENCE = "plumbline:demo/add#0123456789abcdef"
TESTS = json.dumps({"inputs": ["1"], "outputs": ["2"]})


def last_number(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None
) -> float:
    assert data_source == "openai/gsm8k"
    assert extra_info == {"split": "train"}
    return float(solution_str.rpartition(" ")[2] == ground_truth)


async def awaited(**row: Any) -> dict[str, float]:
    return {"score": 0.5, "acc": 1.0, "more": 3.0}


def score(source: str, answer: str, truth: object, server: Server, fallback: object) -> Any:
    return asyncio.run(
        compute_score(source, answer, truth, {"split": "train"}, url=server.url, fallback=fallback)  # type: ignore[arg-type]
    )


def test_one_line_serves_code_and_other_rows(server: Server) -> None:
    right = score("openai/gsm8k", "it is 72", "72", server, last_number)
    assert (right["score"], right["acc"], right["judged"]) == (1.0, 1.0, 1.0)
    assert score("openai/gsm8k", "it is 7", "72", server, last_number)["score"] == 0.0
    assert server.requests == []
    code = score("demo", "pass 0.5", REFERENCE, server, last_number)
    assert (code["score"], len(server.requests)) == (0.5, 1)
    assert code.keys() == right.keys()
    reward = score("openai/gsm8k", "x", "72", server, awaited)
    assert (reward["score"], reward["acc"]) == (0.5, 1.0)
    assert compute_score_sync("x", "", "1", fallback=lambda **_: 0.25) == 0.25


def test_a_fallback_by_name(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("verl.utils.reward_score")
    module.default_compute_score = lambda **row: float(row["ground_truth"])  # type: ignore[attr-defined]
    for name in ("verl", "verl.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert score("math", "x", "0.75", server, "verl")["score"] == 0.75
    for wrong in ("none", "no_such_module:f", "json:nothing", "json:__name__"):
        with pytest.raises(ValueError, match=r"^fallback: "):
            score("math", "x", "1", server, wrong)
    with pytest.raises(ValueError, match="neither number nor score"):
        score("math", "x", "1", server, lambda **_: "good")


def test_what_is_code() -> None:
    human = {"test": "def check(f): pass", "entry_point": "f"}
    for truth in (REFERENCE, TESTS, human, {"ground_truth": TESTS}, {"test_list": ["assert 1"]}):
        assert is_code(truth), truth
    for truth in ("72", "", "[1]", "{x}", "{", '{"answer": "72"}', None, {"target": 24}, "[" * 9):
        assert not is_code(truth), truth
