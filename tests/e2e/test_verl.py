"""Real verl, vLLM and Ray on the CPU: serving, kills, shutdown, cleanup of orphans."""

import asyncio
import hashlib
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow
import pyarrow.parquet
import pytest

from services.runner.tokens import open_counter
from shared.config import load_config
from shared.schemas import Generation
from tests.e2e import plumb
from tests.e2e.verl import CONFIG, SMALL, Generator, Mark, complete, generator, wait_for

pytestmark = [pytest.mark.verl, pytest.mark.e2e, pytest.mark.timeout(600)]

# A hung engine is found in seconds, not in minutes; one that shares two busy cores with another
# that starts, and gives no token for some seconds, is not taken for hung.
PROBES = {
    "PLUMBLINE_GENERATOR_ROUTER_PROBE_INTERVAL": "2",
    "PLUMBLINE_GENERATOR_ROUTER_PROBE_TIMEOUT": "15",
    "PLUMBLINE_GENERATOR_ROUTER_PROBE_FAILURES": "2",
}
MANY = 2000


@pytest.fixture(scope="module")
def service(
    verl_python: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Generator]:
    """Two replicas for all tests of this module, in this order; nothing is left of them."""
    model, two = f"actor_rollout_ref.model.path={tiny_model}", "trainer.n_gpus_per_node=2"
    folder, mark = tmp_path_factory.mktemp("verl"), Mark()
    with generator(
        verl_python, folder, CONFIG, model, two, *SMALL, **PROBES, **mark.variable
    ) as running:
        running.wait_healthy()
        yield running
    mark.check_clean()


def run_demo(service: Generator, output: Path, *overrides: str) -> list[dict[str, Any]]:
    """A whole ``plumb run`` over the demo; returns the samples that were generated."""
    done = plumb.plumb(command(service, output, *overrides))
    assert done.returncode == 0, done.stderr + done.stdout
    return generations(output)


def command(service: Generator, output: Path, *overrides: str) -> list[str]:
    """Like ``plumb.demo_run``, but the generator is there already."""
    config = ["--config", str(CONFIG), "--base-url", f"{service.url}/v1"]
    return plumb.command("run", *config, "--embedded", "--output", str(output), *overrides)


def generations(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "generations.jsonl").read_text().splitlines()]


def test_start_is_told_in_phases(service: Generator) -> None:
    phases = [
        (event["replica"], event["phase"])
        for event in service.events("phase done")
        if "replica" in event
    ]
    expected = ["imports", "checks", "join", "placement", "engine", "facts"]
    for rank in (0, 1):
        assert [phase for replica, phase in phases if replica == rank] == expected
    assert sorted(event["replica"] for event in service.events("ready")) == [0, 1]
    assert {event["looks_random"] for event in service.events("self-check")} == {False}


def test_it_says_what_it_is_made_of(service: Generator, tiny_model: Path) -> None:
    info = service.get("/info")
    assert info["backend"] == "verl"
    assert info["engine"] == "vllm"
    assert {"verl", "vllm", "torch", "ray", "transformers"} <= info["versions"].keys()
    assert info["config"]["rollout"]["load_format"] == "auto"
    assert info["config"]["rollout"]["max_num_seqs"] == 32
    assert info["config"]["model"]["path"] == str(tiny_model)
    assert len(info["chat_template_sha256"]) == 64
    assert info["hardware"][0]["cpu"]
    assert [model["id"] for model in service.get("/v1/models")["data"]] == [info["model_name"]]


def test_the_engines_metrics_are_told_apart(service: Generator) -> None:
    asyncio.run(complete(service.url, 8, max_tokens=4))
    metrics = service.get("/metrics")
    for rank in (0, 1):
        assert f'vllm:generation_tokens_total{{replica="vllm-{rank}"' in metrics or (
            f'replica="{rank}"' in metrics
        )
    assert "plumbline_generator_request_duration_seconds_bucket" in metrics


def test_a_whole_run_over_the_demo(service: Generator, tiny_model: Path, tmp_path: Path) -> None:
    samples = run_demo(service, tmp_path / "out")
    assert_our_count_is_the_engines(samples, tiny_model)
    assert all(sample["finish_reason"] in ("stop", "length") for sample in samples)
    assert all(sample["output_tokens"] > 0 and sample["prompt_tokens"] > 0 for sample in samples)
    assert {sample["replica"] for sample in samples} == {"vllm-0", "vllm-1"}
    lines = (tmp_path / "out" / "verdicts.jsonl").read_text().splitlines()
    statuses = [json.loads(line)["final_status"] for line in lines]
    # The model was made so that there is something of each.
    assert "api_error" not in statuses
    assert 0.1 < statuses.count("success") / len(statuses) < 0.9
    assert len(set(statuses)) >= 3
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["complete"]
    assert run["generator"]["chat_template_sha256"] == service.get("/info")["chat_template_sha256"]


def assert_our_count_is_the_engines(samples: list[dict[str, Any]], tokenizer: Path) -> None:
    counter = open_counter(load_config(CONFIG, [f"data.tokenizer={tokenizer}"]))
    assert counter is not None
    made = [Generation.model_validate(sample) for sample in samples]
    counted = counter.count(
        [generation.model_copy(update={"output_tokens": None}) for generation in made]
    )
    equal = [a.output_tokens == b.output_tokens for a, b in zip(made, counted, strict=True)]
    # A model may split a text otherwise than its tokenizer does; the end token is in every answer.
    assert sum(equal) > len(equal) / 2


def test_greedy_answers_are_the_same_again(service: Generator) -> None:
    first, second = (
        [answer["choices"][0]["message"] for answer in asyncio.run(complete(service.url, 6))]
        for _ in range(2)
    )
    assert first == second


def test_a_prompt_that_is_too_long_costs_that_sample_alone(
    service: Generator, tmp_path: Path
) -> None:
    table = pyarrow.parquet.read_table(plumb.DEMO / "data" / "humaneval.parquet")
    rows = table.to_pylist()[:3]
    rows[1]["prompt"] += "#" + " word" * 5000 + "\n"
    rows[1]["prompt_sha256"] = hashlib.sha256(rows[1]["prompt"].encode()).hexdigest()
    data, output = tmp_path / "humaneval.parquet", tmp_path / "out"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, table.schema), data)
    done = plumb.plumb(command(service, output, f"data.eval_files=[{data}]", "data.lock=null"))
    assert done.returncode == 1
    verdicts = [json.loads(x) for x in (output / "verdicts.jsonl").read_text().splitlines()]
    ours = [verdict for verdict in verdicts if verdict["final_status"] == "api_error"]
    assert len(verdicts) == 3
    assert [verdict["problem_id"] for verdict in ours] == [rows[1]["problem_id"]]
    assert ours[0]["detail"].startswith("prompt_too_long: ")
    # The two lengths.
    assert (
        len({number for number in re.findall(r"\d+", ours[0]["detail"]) if int(number) > 500}) >= 2
    )


def test_many_requests_at_once(service: Generator) -> None:
    memory = psutil.Process(service.process.pid).memory_info
    asyncio.run(complete(service.url, 50, max_tokens=1))
    start = memory().rss
    answers = asyncio.run(complete(service.url, MANY, max_tokens=2))
    assert [answer["status"] for answer in answers] == [200] * MANY
    assert all(answer["usage"]["completion_tokens"] > 0 for answer in answers)
    assert memory().rss - start < 200 * 2**20


@pytest.mark.parametrize(
    ("sign", "victim"),
    [(signal.SIGKILL, 0), pytest.param(signal.SIGSTOP, 1, marks=pytest.mark.nightly)],
)
def test_an_engine_that_dies_or_hangs_in_mid_run_loses_no_sample(
    service: Generator, tmp_path: Path, sign: signal.Signals, victim: int
) -> None:
    output, begun = tmp_path / "out", service.answered()
    several = ("actor_rollout_ref.rollout.n=6", "actor_rollout_ref.rollout.temperature=0.7")
    with plumb.running(command(service, output, *several, "data.limit=6"), output) as process:
        wait_for(lambda: service.answered() > begun + 10, "answers", service.tail, seconds=60)
        service.engine(victim).send_signal(sign)
        assert process.wait(300) == 0, output.with_suffix(".log").read_text()
    samples = generations(output)
    names = {(s["dataset"], s["problem_id"], s["sample_index"]) for s in samples}
    assert len(samples) == len(names)
    assert len(samples) % 6 == 0
    assert all(sample["finish_reason"] in ("stop", "length") for sample in samples)
    assert f"vllm-{victim}" in {ejected["name"] for ejected in service.events("ejected")}
    service.wait_healthy(victim)
    answers = asyncio.run(complete(service.url, 20, max_tokens=2))
    assert any(answer["replica"].startswith(f"vllm-{victim}.") for answer in answers)
