"""Reward functions as each trainer calls them."""

import asyncio
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import plumbline_reward
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plumbline_reward import NotJudgedError, RefusedError
from plumbline_reward.openrlhf_reward import response_of, reward_func
from plumbline_reward.trainers import areal_reward, slime_reward, verifiers_reward

from tests.clients.stand_in import Request, Server

REFERENCE = "plumbline:demo/add#0123456789abcdef"


@pytest.fixture(autouse=True)
def _environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLUMBLINE_REWARD_URL", server.url)


def unjudged_second(request: Request) -> bool:
    return request.judge_but(lambda completion: completion.endswith("lost"))


# verl


def compute(*arguments: Any, **options: Any) -> dict[str, float]:
    return asyncio.run(plumbline_reward.compute_score(*arguments, **options))


def test_verl_gets_the_same_numbers_under_the_same_keys_whatever_the_verdict() -> None:
    wrong = compute("demo", "pass 0", REFERENCE, {})
    right = compute("demo", "pass 1", REFERENCE, None)
    assert list(wrong) == list(right)
    assert {type(value) for value in (*wrong.values(), *right.values())} == {float}
    assert (wrong["score"], wrong["acc"], wrong["judged"]) == (0.0, 0.0, 1.0)
    assert (right["score"], right["acc"], right["cases_total"]) == (1.0, 1.0, 10.0)


def test_verl_raises_where_there_is_no_verdict(server: Server) -> None:
    server.fault = unjudged_second
    with pytest.raises(NotJudgedError):
        compute("demo", "pass 1 lost", REFERENCE, {}, timeout=0.3)


def test_verl_calls_by_keyword_with_arguments_of_its_own(server: Server) -> None:
    score = compute(
        data_source="demo",
        solution_str="pass 0.5",
        ground_truth=REFERENCE,
        extra_info={"split": "validation", "num_turns": 2},
        reward_router_address=None,
        reward_model_tokenizer=None,
        score="accepted",
    )
    assert score["score"] == 0.0
    assert server.bodies[0]["purpose"] == "validation"
    with pytest.raises(TypeError, match="scores"):
        compute("demo", "pass 1", REFERENCE, {}, scores="accepted")
    with pytest.raises(ValueError, match="score: 'best' is none of"):
        compute("demo", "pass 1", REFERENCE, {}, score="best")


def test_verls_last_turn_is_judged_in_place_of_the_whole_rollout(server: Server) -> None:
    compute("demo", "pass 0 and a tool's output", REFERENCE, {"last_turn": "pass 1"})
    assert server.asked() == ["pass 1"]


def test_verls_main_eval_gets_a_number(server: Server) -> None:
    score = plumbline_reward.compute_score_sync("demo", "pass 0.5", REFERENCE)
    assert (score, type(score)) == (0.5, float)
    assert server.bodies[0]["purpose"] == "validation"


def test_an_empty_ground_truth_is_refused() -> None:
    for nothing in (None, "", {"ground_truth": None}):
        with pytest.raises(RefusedError, match="the ground truth is empty"):
            compute("demo", "pass 1", nothing)


def test_ground_truth_from_parquet_may_have_numpy_in_it(server: Server) -> None:
    numpy = pytest.importorskip("numpy")
    compute("apps", "pass 1", {"inputs": numpy.array(["1", "2"], dtype=object)})
    assert server.bodies[0]["items"][0]["ground_truth"] == {"inputs": ["1", "2"]}


# TRL


def test_trl_scores_standard_and_conversational_completions() -> None:
    completions = [
        "pass 0.5",
        [{"role": "assistant", "content": "pass 0.25"}],
        [
            {"role": "assistant", "content": "pass 0", "tool_calls": []},
            {"role": "tool", "content": "pass 0.9"},
            {"role": "assistant", "content": [{"type": "text", "text": "pass 0.75"}]},
        ],
    ]
    scores = plumbline_reward.reward_func(
        prompts=["p"] * 3,
        completions=completions,
        completion_ids=[[1]] * 3,
        ground_truth=[REFERENCE] * 3,
        trainer_state=None,
    )
    assert scores == [0.5, 0.25, 0.75]


def test_trl_takes_verls_column_or_a_named_one(server: Server) -> None:
    row = {"reward_model": [{"style": "rule", "ground_truth": "{}"}], "data_source": ["apps"]}
    plumbline_reward.reward_func(["p"], ["pass 1"], **row)
    assert server.bodies[0]["items"][0]["dataset"] == "apps"
    reward = plumbline_reward.make_reward_func(column="tests", score="accepted", name="code")
    assert reward.__name__ == "code"
    assert reward(["p"], ["pass 0.5"], tests=[REFERENCE], ground_truth=["x"]) == [0.0]
    with pytest.raises(RefusedError, match=r"no column tests; its columns are \['ground_truth'\]"):
        reward(["p"], ["pass 0.5"], ground_truth=["x"])
    with pytest.raises(RefusedError, match="2 completions, but 1 rows"):
        reward(["p", "p"], ["pass 1", "pass 1"], tests=[REFERENCE])
    with pytest.raises(TypeError):
        plumbline_reward.make_reward_func(rule="accepted")


def test_columns_may_be_arrays(server: Server) -> None:
    numpy = pytest.importorskip("numpy")
    sources, truths = numpy.array(["apps", "taco"]), numpy.array(["{}", "{}"])
    row = {"ground_truth": truths, "data_source": sources}
    assert plumbline_reward.reward_func(["p"] * 2, ["pass 1", "pass 0"], **row) == [1.0, 0.0]
    assert [item["dataset"] for item in server.bodies[0]["items"]] == ["apps", "taco"]
    assert areal_reward("p", "pass 0.5", [1], [2], ground_truth=truths) == 0.5


@pytest.mark.parametrize("completion", [None, 7, ["pass 1"], {"role": "user", "content": "x"}])
def test_a_completion_of_another_shape_is_refused(completion: Any) -> None:
    with pytest.raises(RefusedError, match="neither a text nor chat messages"):
        plumbline_reward.reward_func(["p"], [completion], ground_truth=[REFERENCE])


def test_trl_gets_none_for_the_unjudged_only_if_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = unjudged_second
    logged: dict[str, float] = {}
    arguments = (["p"] * 2, ["pass 1", "pass 1 lost"])
    row = {"ground_truth": [REFERENCE] * 2, "log_metric": logged.__setitem__}
    reward = plumbline_reward.make_reward_func(on_unjudged="none", timeout=0.3)
    assert reward(*arguments, **row) == [1.0, None]
    assert logged == {"plumbline/unjudged": 0.5, "plumbline/accepted": 1.0}
    monkeypatch.setenv("PLUMBLINE_REWARD_TIMEOUT", "0.3")
    with pytest.raises(NotJudgedError, match="sandbox lost"):
        plumbline_reward.reward_func(*arguments, **row)
    monkeypatch.setenv("PLUMBLINE_REWARD_ON_UNJUDGED", "none")
    assert plumbline_reward.reward_func(*arguments, **row) == [1.0, None]


# OpenRLHF


@pytest.mark.parametrize(
    ("query", "prompt", "response"),
    [
        ("<|user|>add<|assistant|>pass 1<|im_end|>\n", "<|user|>add<|assistant|>", "pass 1"),
        ("promptpass 1</s>", "prompt", "pass 1"),
        ("promptpass 1<｜end▁of▁sentence｜>", "prompt", "pass 1"),
        ("prompta <| b |> c", "prompt", "a <| b |> c"),
        ("prompt", "prompt", ""),
        ("b" * 100 + "pass 1", "a" * 50 + "b" * 100, "pass 1"),
        ("caf\u00e9 pass 1", "cafe\u0301 ", "pass 1"),
    ],
)
def test_openrlhf_response_is_the_query_without_its_prompt(
    query: str, prompt: str, response: str
) -> None:
    assert response_of(query, prompt) == response


TOKENS = ["<|im_end|>", "<｜end▁of▁sentence｜>", "</s>", "<pad>", "<eos>", "<end_of_turn>"]


@given(st.lists(st.sampled_from(TOKENS), min_size=1), st.sampled_from(["", " ", "\n"]))
def test_openrlhf_special_tokens_at_the_end_are_removed(tokens: list[str], blank: str) -> None:
    assert response_of("print(1)" + blank + blank.join(tokens), "") == "print(1)"


@pytest.mark.parametrize("repeated", [" ", "</s>", "</s> "])
def test_openrlhf_repetitions_before_the_end_cost_no_time(repeated: str) -> None:
    """Quadratic time would take longer than a test may."""
    text = repeated * 200_000 + "x"
    assert response_of(text, "") == text
    assert response_of("x" + repeated.strip() + repeated * 200_000 + "</s>", "") == "x"


def test_openrlhf_rewards(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(tensor=list))
    rewards = reward_func(["p pass 1</s>", "p pass 0.5"], ["p ", "p "], [REFERENCE] * 2, step=1)
    assert server.asked() == ["pass 1", "pass 0.5"]
    assert (rewards["rewards"], rewards["scores"]) == ([1.0, 0.5], [1.0, 0.0])
    assert rewards["extra_logs"]["pass_ratio"] == [1.0, 0.5]
    with pytest.raises(RefusedError):
        reward_func(["p pass 1"], ["p "], [])


# slime, AReaL, verifiers


def test_slime_scores_a_sample_or_a_list() -> None:
    samples = [SimpleNamespace(prompt="p", response=f"pass {r}", label=REFERENCE) for r in (0.5, 1)]
    assert asyncio.run(slime_reward(None, samples[0])) == 0.5
    assert asyncio.run(slime_reward(None, samples, evaluation=True)) == [0.5, 1.0]
    ended = SimpleNamespace(prompt="p", response="pass 0.25<|im_end|>", label=REFERENCE)
    assert asyncio.run(slime_reward(None, ended)) == 0.25


def test_areal_and_verifiers_find_the_reference_in_the_row() -> None:
    assert areal_reward("p", "pass 0.5", [1], [2], ground_truth=REFERENCE) == 0.5
    chat = [{"role": "assistant", "content": "pass 0.25"}]
    assert asyncio.run(verifiers_reward(chat, REFERENCE, {}, state={})) == 0.25
    assert asyncio.run(verifiers_reward(chat, info={"ground_truth": REFERENCE})) == 0.25
    with pytest.raises(RefusedError, match="no ground truth: the row needs one of"):
        areal_reward("p", "pass 0.5", [1], [2])


# Processes of their own


def test_what_is_exported_can_be_pickled() -> None:
    """Ray and `datasets` send reward functions, errors and verdicts to other processes."""
    made = plumbline_reward.make_reward_func(name="code", score="accepted")
    verdict = plumbline_reward.score([{"ground_truth": REFERENCE, "completion": "pass 1"}])[0]
    function, sent, _ = pickle.loads(pickle.dumps([made, verdict, plumbline_reward.Client()]))
    assert function.__name__ == "code"
    columns = {"ground_truth": [REFERENCE] * 2}
    assert function(["p"] * 2, ["pass 1", "pass 0"], **columns) == [1.0, 0.0]
    assert sent == verdict
    for name in plumbline_reward.__all__:
        exported = getattr(plumbline_reward, name)
        assert pickle.loads(pickle.dumps(exported)) is exported, name
    for error in (RefusedError("no", 404), NotJudgedError("late")):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
