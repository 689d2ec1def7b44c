import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.analysis.model_size import METRICS, ModelSize, model_size, size_in_name, typical_range
from shared.config import load_config
from shared.run_record import RunRecord


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen2.5-Coder-7B-Instruct", 7),
        ("deepseek-ai/deepseek-coder-6.7b-instruct", 6.7),
        ("mistralai/Mixtral-8x7B-v0.1", 56),
        ("Qwen/Qwen3-30B-A3B", 30),
        ("EleutherAI/pythia-410m", 0.41),
        ("bigcode/starcoder2_15b", 15),
        ("meta-llama/Llama-3.1-8B", 8),
        ("microsoft/phi-2-2.7B", 2.7),
        ("/models/coder-7b-4bit", 7),
        ("/models/Coder-1.5B/step_200", 1.5),
        ("Qwen/Qwen1.5-MoE-A2.7B", None),
        ("distilled-72B-to-7B", None),
        ("google/gemma-3n-E4B", None),
        ("replay", None),
        ("gpt-4o", None),
        ("model-0b", None),
        ("", None),
    ],
)
def test_size_in_a_name(name, billions):
    size = size_in_name(name)
    assert (size and size.billions) == pytest.approx(billions)


@given(st.sampled_from([0.5, 1.5, 3, 7, 14, 32, 70]), st.sampled_from("bB"))
def test_any_written_size_is_read(billions, unit):
    size = size_in_name(f"org/Coder-{billions:g}{unit}-Instruct")
    assert size is not None
    assert size.billions == billions


def record(generator=None, **overrides):
    config = load_config(
        None, [f"{key.replace('__', '.')}={value}" for key, value in overrides.items()]
    )
    return RunRecord(run="r", config=config, generator=generator, model=None)


def test_the_server_comes_first_and_weights_last():
    name = {"generation__model": "coder-7b"}
    reported = record({"model": {"num_parameters": 7_600_000_000, "weights": {"a": 4e9}}}, **name)
    assert model_size(reported) == ModelSize(7.6, "as the server reports")
    weights = {"model": {"weights": {"a.safetensors": 8_000_000_000, "b": 7_200_000_000}}}
    assert model_size(record(weights, **name)) == ModelSize(7.0, "by the name coder-7b")
    size = model_size(record(weights))
    assert size is not None
    assert size.billions == pytest.approx(7.6)
    assert str(size) == "7.6 B (about, from 15.2 GB of weights at two bytes each)"


@pytest.mark.parametrize(
    "generator",
    [
        None,
        {},
        {"num_parameters": "7B"},
        {"num_parameters": True},
        {"num_parameters": -1},
        {"http://a": {"num_parameters": 7e9}, "http://b": {"num_parameters": 8e9}},
        {"model": {"weights": []}},
        {"model": {"weights": {"a": "big"}}},
    ],
)
def test_what_no_size_can_be_told_of(generator):
    assert model_size(record(generator)) is None


@given(st.floats(0.001, 2000), st.sampled_from(METRICS))
def test_ranges_are_shares_in_order(billions, metric):
    size = ModelSize(billions, "as given")
    for name in ("codecontests_valid", "humaneval", "mbpp_reg"):
        if found := typical_range(size, name, metric):
            assert 0 <= found.low < found.high <= 1
            assert not found.excludes([found.low, found.high])
            assert found.excludes([found.high + 0.001, 1.1])


def test_where_no_range_is_known():
    assert typical_range(ModelSize(1.5, ""), "codecontests_valid", "accepted_at_1") is None
    assert typical_range(ModelSize(0.1, ""), "humaneval", "accepted_at_1") is None
    assert typical_range(ModelSize(7, ""), "mbpp_reg", "accepted_at_1") is None
