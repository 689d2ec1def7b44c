"""Metrics of the router, merged with those of the engines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from services.generator.router import metrics
from services.generator.router.metrics import count_tokens, merge
from tests.generator.router.conftest import Start
from tests.generator.router.engines import FakeFactory

VLLM = """\
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="/models/a b,c}"} 3.0
# HELP vllm:generation_tokens_total Tokens.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0"} 120.0
# TYPE vllm:latency histogram
vllm:latency_bucket{le="0.5"} 1 1700000000000
vllm:latency_bucket{le="+Inf"} 2
vllm:latency_sum 0.7
vllm:latency_count 2
"""


def samples(merged: bytes) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(merged.decode())
        for sample in family.samples
    ]


def test_expositions_are_merged_by_metric() -> None:
    merged = merge({"0": VLLM, "1": VLLM.replace("3.0", "5.0")}).decode()
    lines = merged.splitlines()
    assert lines[:4] == [
        "# HELP vllm:num_requests_running Number of requests.",
        "# TYPE vllm:num_requests_running gauge",
        'vllm:num_requests_running{engine="0",model_name="/models/a b,c}",replica="0"} 3.0',
        'vllm:num_requests_running{engine="0",model_name="/models/a b,c}",replica="1"} 5.0',
    ]
    assert 'vllm:latency_bucket{le="0.5",replica="1"} 1.0 1700000000000' in lines
    assert 'vllm:latency_sum{replica="0"} 0.7' in lines
    families = {family.name: family for family in text_string_to_metric_families(merged)}
    assert len(families["vllm:latency"].samples) == 8
    assert families["vllm:latency"].type == "histogram"


@pytest.mark.parametrize(
    "damage",
    [
        *("x 1 " + "9" * 400, "x " + "9" * 400, "x 1 NaN", 'x{ ="1"} 1', "<html>"),
        *("bad one two three", "worse{a=b} 1", 'x{a="1"', 'number{a="1"} x', "\ufffd 1"),
    ],
)
def test_a_damaged_text_is_skipped(damage: str) -> None:
    merged = merge({"0": f"good 1\n{damage}\n", "1": "good 2\n"})
    assert samples(merged) == [("good", {"replica": "1"}, 2.0)]
    assert merge({}) == b""


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    list(text_string_to_metric_families(merge({"0": text, "1": text}).decode()))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (VLLM, 120),
        (VLLM + 'vllm:prompt_tokens_total{engine="0"} 7\nvllm:prompt_tokens_total 1e1', 137),
        ("sglang:generation_tokens_total 4", 4),
        ("vllm:generation_tokens_created 4\nother_total 5", None),
        ("vllm:generation_tokens_total x", None),
        ("", None),
    ],
)
def test_tokens_counted_by_an_engine(text: str, tokens: float | None) -> None:
    assert count_tokens(text) == tokens


async def test_engines_metrics_beside_ours(start: Start, factory: FakeFactory) -> None:
    factory.metrics = VLLM
    service = await start(2)
    assert (await service.ask())[0] == 200
    text = await service.metrics()
    list(text_string_to_metric_families(text))  # all of it can be read
    for line in (
        'vllm:generation_tokens_total{engine="0",replica="0"} 120.0',
        'vllm:generation_tokens_total{engine="0",replica="1"} 120.0',
        'plumbline_generator_requests_total{outcome="answered"} 1.0',
        'plumbline_generator_tokens_total{kind="prompt"} 3.0',
        'plumbline_generator_tokens_total{kind="completion"} 2.0',
        "plumbline_generator_request_duration_seconds_count 1.0",
        'plumbline_generator_replica_healthy{replica="0"} 1.0',
        'plumbline_generator_replica_restarts_total{replica="0"} 0.0',
        "plumbline_generator_requests_queued 0.0",
    ):
        assert line in text.splitlines()


async def test_an_engine_that_is_slow_is_left_out(
    start: Start, factory: FakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_SCRAPE_SECONDS", 1.0)
    factory.metrics = VLLM
    service = await start(2)
    factory.engine(0).metrics_gate.clear()
    text = await service.metrics()
    assert 'vllm:generation_tokens_total{engine="0",replica="1"} 120.0' in text
    assert 'vllm:generation_tokens_total{engine="0",replica="0"} 120.0' not in text
