"""verl's configuration, as Hydra writes it."""

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
    ("text", "words"),
    [
        ("", "no configuration of verl"),
        ("data: {}", "no configuration of verl"),
        ("a: [", "config.yaml: "),
        ("actor_rollout_ref: {n: '${nothing.here}'}", "nothing.here"),
        ("- actor_rollout_ref", "must be a mapping"),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_trainer_config(str(file))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
