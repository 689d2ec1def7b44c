"""Validation of model folders before the start."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from services.generator.backends.verl.model_folder import local_folder, read_model_folder
from shared.config import Config, load_config
from shared.errors import ConfigError
from tests.generator.verl.conftest import CONFIG, SAFETENSORS, MakeModel, check


def configured(folder: Path | str, *overrides: str) -> Config:
    lengths = "actor_rollout_ref.rollout={prompt_length: 512, response_length: 256}"
    return load_config(None, [f"actor_rollout_ref.model.path={folder}", lengths, *overrides])


def refusal(folder: Path | str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check(configured(folder, *overrides))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_usable_model(make_model: MakeModel) -> None:
    model = read_model_folder(make_model())
    assert (model.architecture, model.context) == ("Qwen2ForCausalLM", 1024)
    assert model.has_chat_template
    assert check(configured(model.path)) == 1


def test_a_name_on_the_hub_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_folder("Qwen/Qwen2.5-Coder-7B-Instruct") is None
    assert check(configured("Qwen/Qwen2.5-Coder-7B-Instruct")) == 1


@pytest.mark.parametrize("path", ["/no/such/model", "./none", "../none", "~/none", "a/b/c"])
def test_a_folder_that_is_not_there(path: str) -> None:
    assert f"there is no folder {path!r}" in refusal(path)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"config": None}, "has no config.json"),
        ({"config": "{"}, "config.json cannot be read"),
        ({"config": "[]"}, "is not a JSON object"),
        ({"config": {**CONFIG, "architectures": []}}, "must name one architecture, not []"),
        ({"config": {"vocab_size": 5}}, "must name one architecture, not None"),
        ({"weights": None}, "has no weights"),
        ({"tokenizer": None}, "has no tokenizer"),
        ({"template": None}, "has no chat template"),
        ({"template": ""}, "has no chat template"),
    ],
)
def test_a_folder_that_lacks_something(
    make_model: MakeModel, parts: dict[str, Any], said: str
) -> None:
    folder = make_model(**parts)
    message = refusal(folder)
    assert said in message
    assert str(folder) in message


def test_a_missing_shard_of_the_weights(make_model: MakeModel) -> None:
    folder = make_model(weights="model-1.safetensors")
    shards = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    assert "lacks weights: model-2.safetensors" in refusal(folder)
    (folder / "model-2.safetensors").write_bytes(SAFETENSORS)
    assert check(configured(folder)) == 1


TENSOR = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no safetensors header"),
        (b"no weights at all", "no safetensors header"),
        ((4).to_bytes(8, "little") + b"[{}]", "no safetensors header"),
        (len(TENSOR).to_bytes(8, "little") + TENSOR, "bytes, it should have"),
        (len(TENSOR).to_bytes(8, "little") + TENSOR + b"123", "bytes, it should have"),
    ],
)
def test_weights_that_were_cut_off(make_model: MakeModel, content: bytes, said: str) -> None:
    folder = make_model()
    (folder / "model.safetensors").write_bytes(content)
    message = refusal(folder)
    assert f"{folder / 'model.safetensors'} is damaged" in message
    assert said in message


@contextmanager
def nobody() -> Iterator[None]:
    """As a user whom permissions concern, which they do not concern root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize(
    ("closed", "named"), [("model/config.json", "model/config.json"), (".", "model")]
)
def test_what_may_not_be_read(make_model: MakeModel, closed: str, named: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # below ``tmp_path`` no other user may look
        parent = Path(folder)
        parent.chmod(0o755)
        model = shutil.copytree(make_model(), parent / "model")
        (parent / closed).chmod(0)
        with nobody():
            message = refusal(model)
        (parent / closed).chmod(0o755)
    assert f"{parent / named} cannot be read: Permission denied" in message
    assert "chmod -R a+rX" in message


@pytest.mark.parametrize("missing", ["verl", "ray", "sglang"])
def test_a_package_that_is_not_installed(make_model: MakeModel, missing: str) -> None:
    config = configured(make_model(), "actor_rollout_ref.rollout.name=sglang")
    with pytest.raises(ConfigError, match=f"^{missing} is not installed"):
        check(config, missing)


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json"])
def test_a_chat_template_in_a_file_of_its_own(make_model: MakeModel, name: str) -> None:
    folder = make_model(template=None)
    (folder / name).write_text("{}")
    assert check(configured(folder)) == 1


def test_a_chat_template_that_is_given(make_model: MakeModel, tmp_path: Path) -> None:
    folder, file = make_model(template=None), tmp_path / "chat.jinja"
    assert "no file" in refusal(folder, f"generation.verl.chat_template={file}")
    file.write_text("{{ messages }}")
    assert check(configured(folder, f"generation.verl.chat_template={file}")) == 1


def test_a_chat_template_that_sglang_would_read_as_json(
    make_model: MakeModel, tmp_path: Path
) -> None:
    file = tmp_path / "chat.txt"
    file.write_text("{{ messages }}")
    folder, template = make_model(), f"generation.verl.chat_template={file}"
    assert check(configured(folder, template)) == 1
    said = refusal(folder, template, "actor_rollout_ref.rollout.name=sglang")
    assert "only from a file named *.jinja" in said


@pytest.mark.parametrize(
    ("model", "overrides", "said"),
    [
        ({}, ["response_length=512"], None),
        ({}, ["response_length=513"], "together beyond the context of"),
        ({}, ["max_model_len=1025"], "rollout.max_model_len 1025 is beyond the context"),
        ({}, ["max_model_len=767"], "are more than rollout.max_model_len 767"),
        ({"max_position_embeddings": None}, ["response_length=9999"], None),
        ({"rope_scaling": {"factor": 4.0}}, ["response_length=3584"], None),
        ({"rope_scaling": {"factor": 4.0}}, ["response_length=3585"], "4096 tokens"),
        (
            {"rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 256}},
            ["response_length=513"],
            "1024 tokens",
        ),
        ({"text_config": {"max_position_embeddings": 600}}, [], "600 tokens"),
    ],
)
def test_prompt_and_response_have_to_fit(
    make_model: MakeModel, model: dict[str, Any], overrides: list[str], said: str | None
) -> None:
    folder = make_model(config={**CONFIG, **model})
    dotted = [f"actor_rollout_ref.rollout.{override}" for override in overrides]
    if said is None:
        assert check(configured(folder, *dotted)) == 1
    else:
        assert said in refusal(folder, *dotted)


def test_cpus_have_no_deterministic_kernels(make_model: MakeModel) -> None:
    settings = ("generation.verl.cpu_engine=true", "generation.deterministic=true")
    assert "for GPUs only" in refusal(make_model(), *settings)


def checkpoint(folder: Path, model: Path, *, backend: str = "fsdp") -> Path:
    """A checkpoint as verl's trainer leaves it: shards, and the model's config and tokenizer."""
    actor = folder / "global_step_20" / "actor"
    shutil.copytree(model, actor / "huggingface")
    for weights in (actor / "huggingface").glob("*.safetensors"):
        weights.unlink()
    if backend == "fsdp":
        for rank in range(2):
            (actor / f"model_world_size_2_rank_{rank}.pt").write_bytes(b"shard")
        (actor / "fsdp_config.json").write_text('{"FSDP_version": 1, "world_size": 2}')
    else:
        (actor / "dist_ckpt").mkdir()
    return actor


@pytest.mark.parametrize("backend", ["fsdp", "megatron"])
@pytest.mark.parametrize("part", ["", "..", "huggingface"])
def test_a_checkpoint_that_is_not_merged(
    tmp_path: Path, make_model: MakeModel, backend: str, part: str
) -> None:
    actor = checkpoint(tmp_path / "a b", make_model(), backend=backend)
    path = actor.parent if part == ".." else actor / part
    message = refusal(f"'{path}'")
    assert f"{path} is a checkpoint of verl's training whose weights are not merged" in message
    assert f"python -m verl.model_merger merge --backend {backend} --local_dir '{actor}'" in message
    assert f"--target_dir '{actor.parent / 'merged'}'" in message


def test_a_checkpoint_that_was_saved_whole(tmp_path: Path, make_model: MakeModel) -> None:
    model = make_model()
    actor = checkpoint(tmp_path, model)
    whole = actor / "huggingface"
    for weights in model.glob("*.safetensors"):
        shutil.copy(weights, whole)
    assert f"its whole model is in {whole}" in refusal(actor.parent)
    assert read_model_folder(whole).architecture == "Qwen2ForCausalLM"
