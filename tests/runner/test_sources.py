"""Sources of completions: a generator, and files of recorded completions."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import OutOfMemoryError

from services.runner.sources import (
    RecordedSource,
    generator_source,
    match_completions,
    sample_seed,
    sampling_fields,
)
from shared.completions import RecordedCompletion
from shared.config import load_config
from shared.errors import DataError
from shared.schemas import SampleId, sha256
from tests.runner.generators import Servers, answer
from tests.shared.ledgers import problem


async def test_lone_surrogates_are_replaced_since_no_file_could_hold_them() -> None:
    sample = SampleId("d", "p")
    fields = {"problem_id": "p", "completion": "a\ud800b", "reasoning_content": "c\ud800"}
    source = RecordedSource()
    source.add(sample, RecordedCompletion.model_validate(fields))
    [generation] = [g async for some in source([sample]) for g in some]
    assert (generation.completion, generation.reasoning) == ("a\ufffdb", "c\ufffd")
    assert source.hashes == {sample: sha256("a\ufffdb")}
    assert generation.model_dump_json()


async def test_each_sample_is_asked_with_the_seed_that_is_stored_with_it(servers: Servers) -> None:
    sent: dict[str, dict[str, Any]] = {}

    async def chat(request: web.Request) -> web.Response:
        sent[request.headers["X-Request-Id"]] = await request.json()
        return answer()

    config = load_config(
        None, ["actor_rollout_ref.rollout.temperature=0.8", "data.system_prompt=Be brief."]
    )
    client = await servers.client(await servers.stand_in(chat))
    source = generator_source(client, config, [problem("p1"), problem("p2")], "run")
    owed = [SampleId("d1", name, index) for name in ("p1", "p2") for index in range(3)]
    generations = [g async for some in source(owed) for g in some]
    seeds = {generation.sample: generation.seed for generation in generations}
    assert set(seeds) == set(owed)
    assert len(set(seeds.values())) == 6
    for sample, seed in seeds.items():
        payload = sent[f"run/{sample.key}"]
        assert payload["seed"] == seed
        assert payload["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_the_error_of_a_consumer_is_the_one_that_is_raised(servers: Servers) -> None:
    async def chat(_request: web.Request) -> web.Response:
        await asyncio.sleep(0.01)
        return answer()

    client = await servers.client(await servers.stand_in(chat))
    source = generator_source(client, load_config(None, []), [problem("p1")], "run")
    owed = [SampleId("d1", "p1", index) for index in range(20)]
    with pytest.raises(OutOfMemoryError, match="no more"):
        async with aclosing(source(owed)) as generations:
            async for _ in generations:
                raise OutOfMemoryError("no more")


# Sampling parameters with a seed per sample

SAMPLE = SampleId("d", "p", 3)
samples = st.builds(SampleId, st.text(min_size=1), st.text(min_size=1), st.integers(0, 10**6))


def seed_of(*overrides: str, sample: SampleId = SAMPLE) -> object:
    warm = "actor_rollout_ref.rollout.temperature=0.7"
    return sampling_fields(load_config(None, [warm, *overrides]), sample)["seed"]


def test_fields_come_from_the_config() -> None:
    rollout = "actor_rollout_ref.rollout"
    keys = [f"{rollout}.{key}" for key in ("temperature=0.5", "top_p=0.9", "top_k=7", "n=4")]
    overrides = [*keys, f"{rollout}.response_length=11", "generation.stop=[END]"]
    overrides += ["generation.extra_body={top_p: null, reasoning_effort: low}"]
    fields = sampling_fields(load_config(None, overrides), SAMPLE)
    assert fields == {
        "temperature": 0.5,
        "max_tokens": 11,
        "seed": sample_seed(0, SAMPLE),
        "top_k": 7,
        "stop": ["END"],
        "include_stop_str_in_output": True,
        "no_stop_trim": True,
        "reasoning_effort": "low",
    }
    overrides = ["generation.seed=5", "generation.max_completion_tokens=true"]
    greedy = sampling_fields(load_config(None, overrides), SAMPLE)
    assert set(greedy) == {"temperature", "top_p", "max_completion_tokens"}


def test_seeds_follow_from_the_runs_seed_or_the_generators() -> None:
    assert seed_of() == seed_of() == seed_of("run.seed=0") == seed_of("generation.seed=0")
    assert seed_of("run.seed=1") == seed_of("generation.seed=1") != seed_of()
    assert seed_of("run.seed=2", "generation.seed=1") == seed_of("run.seed=1")


def test_seeds_are_the_same_on_every_machine() -> None:
    assert sample_seed(0, SampleId("humaneval", "HumanEval/0", 0)) == 1262466307
    assert sample_seed(0, SampleId("humaneval", "HumanEval/0", 1)) == 1769418420


@given(st.integers(), samples, st.sets(st.integers(0, 2**31 - 1), min_size=2, max_size=50))
def test_no_two_samples_of_a_problem_share_a_seed(
    base: int, sample: SampleId, indices: set[int]
) -> None:
    seeds = {
        sample_seed(base, SampleId(sample.dataset, sample.problem_id, index)) for index in indices
    }
    assert len(seeds) == len(indices)


# Files of recorded completions

PROBLEMS = [problem("p1", "d1"), problem("p2", "d1"), problem("p1", "d2"), problem("q", "d2")]


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(*lines: dict[str, object]) -> str:
        path = tmp_path / "completions.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    return write


def line(problem_id: str, completion: str = "x", **fields: object) -> dict[str, object]:
    return {"problem_id": problem_id, "completion": completion, **fields}


def refusal(path: str) -> str:
    with pytest.raises(DataError) as caught:
        match_completions(path, PROBLEMS)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_completions_find_their_problems(file: Any) -> None:
    path = file(
        line("p2", "b"),
        line("p1", "a", dataset="d1"),
        line("p1", "c", dataset="d2", sample_index=1),
        line("p1", "d", dataset="d2"),
    )
    matched = match_completions(path, PROBLEMS)
    assert {sample: matched.completion(sample).completion for sample in matched.hashes} == {
        SampleId("d1", "p2"): "b",
        SampleId("d1", "p1"): "a",
        SampleId("d2", "p1", 1): "c",
        SampleId("d2", "p1", 0): "d",
    }
    assert matched.unknown == []
    assert matched.missing == ["q"]
    indices = matched.indices()
    assert indices == {("d1", "p1"): [0], ("d1", "p2"): [0], ("d2", "p1"): [0, 1]}


def test_samples_with_the_ids_of_evalplus(file: Any) -> None:
    problems = [problem("mbpp_3", "m"), problem("HumanEval/3", "h"), problem("Mbpp/4", "m")]
    path = file(line("Mbpp/3", "a"), line("HumanEval/3"), line("Mbpp/4"), line("Mbpp/3", "b"))
    assert set(match_completions(path, problems).hashes) == {
        SampleId("m", "mbpp_3", 0),
        SampleId("m", "mbpp_3", 1),
        SampleId("h", "HumanEval/3"),
        SampleId("m", "Mbpp/4"),
    }


def test_what_belongs_to_no_problem_is_counted(file: Any) -> None:
    path = file(line("q"), line("other"), line("p2", dataset="d2"), line("q", dataset="d9"))
    matched = match_completions(path, PROBLEMS)
    assert set(matched.hashes) == {SampleId("d2", "q")}
    assert matched.unknown == ["other", "p2", "q"]
    assert matched.missing == ["p1", "p2", "p1"]


def test_an_id_that_two_data_sets_have_needs_a_data_set(file: Any) -> None:
    message = refusal(file(line("p1")))
    assert "'p1'" in message
    assert "d1, d2" in message


def test_a_sample_that_is_there_twice(file: Any) -> None:
    assert "d2/q/1" in refusal(file(line("q"), line("q"), line("q", sample_index=1)))
    assert "d2/q/3" in refusal(file(line("q", sample_index=3), line("q", sample_index=3)))


def test_no_completion_belongs_to_the_data(file: Any) -> None:
    assert "none of its 2 completions" in refusal(file(line("a"), line("b")))
    assert "none of its 0 completions" in refusal(file())


async def test_a_source_gives_what_is_asked_for(file: Any) -> None:
    path = file(
        line("q", "a", output_tokens=7, gen_time=0.5, finish_reason="stop", prompt_tokens=3),
        line("p2", "b\u2028"),
    )
    source = match_completions(path, PROBLEMS)
    asked = [SampleId("d1", "p2"), SampleId("d2", "q")]
    assert source.hashes == {asked[0]: sha256("b\u2028"), asked[1]: sha256("a")}
    given = [g async for some in source(asked) for g in some]
    assert [g.sample for g in given] == asked
    assert given[0].completion_sha256 == sha256("b\u2028")
    assert (given[1].output_tokens, given[1].prompt_tokens, given[1].gen_time) == (7, 3, 0.5)
    assert (given[1].finish_reason, given[1].requests, given[1].replica) == ("stop", 0, "recorded")
    assert [g async for some in source([]) for g in some] == []
