"""verl's configuration, from the places where it can be found."""

import pprint
from pathlib import Path

import pytest

from services.training.trainer_config import read_trainer_config
from shared.errors import ConfigError

# As Hydra writes it: interpolations unresolved, missing values as ???.
HYDRA = """
actor_rollout_ref:
  rollout:
    name: ???
    n: 8
    prompt_length: ${oc.select:data.max_prompt_length,512}
    val_kwargs: {temperature: 0}
data:
  max_prompt_length: 4096
  train_files: [a.parquet, b.parquet]
  val_files: c.parquet
"""
VALUES = {
    "actor_rollout_ref": {"rollout": {"name": "???", "n": 8, "prompt_length": 4096}},
    "data": {"train_files": ["a" * 200, "}"], "val_files": None, "note": "brace }\n}"},
    "trainer": {"logger": ["console"], "test_freq": -1},
}


def test_what_hydra_writes_is_resolved(tmp_path: Path) -> None:
    folder = tmp_path / ".hydra"
    folder.mkdir()
    (folder / "config.yaml").write_text(HYDRA)
    for path in (tmp_path, folder / "config.yaml"):
        config = read_trainer_config(str(path))
        assert config.number("actor_rollout_ref.rollout.prompt_length") == 4096
        assert config.number("actor_rollout_ref.rollout.val_kwargs.temperature") == 0
        assert config.get("actor_rollout_ref.rollout.name") is None
        assert config.get("actor_rollout_ref.rollout.n.nothing") is None
        assert config.files("data.train_files") == ["a.parquet", "b.parquet"]
        assert config.files("data.val_files") == ["c.parquet"]


@pytest.mark.parametrize(
    "mark", ["", "(TaskRunnerV1 pid=4711) ", "\x1b[36m(R pid=1, ip=10.0.0.2)\x1b[0m "]
)
def test_what_main_ppo_prints_is_found_in_a_log(tmp_path: Path, mark: str) -> None:
    printed = pprint.pformat(VALUES).splitlines()
    lines = ["INFO starting", "{'metric': 1}", *printed, "step:1 - {'loss': 2}", "the end }"]
    log = tmp_path / "trainer.log"
    log.write_text("".join(f"{mark}{line}\n" for line in lines))
    assert read_trainer_config(str(log)).values == VALUES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no configuration of verl"),
        ("data: {}", "no configuration of verl"),
        ("a: [", "not a YAML configuration"),
        ("actor_rollout_ref: {n: '${nothing.here}'}", "not a YAML configuration"),
        ("{'actor_rollout_ref': {'cut': 1,\n", "no configuration of verl"),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_trainer_config(str(file))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the trainer's config"):
        read_trainer_config(str(tmp_path / "absent.yaml"))
