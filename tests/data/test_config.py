from pathlib import Path

import pytest
import yaml

from services.data.config import PrepareConfig
from shared.config_files import load_document, validate_document
from shared.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("data*.yaml")), ids=lambda path: path.name)
def test_every_config_of_the_repository_loads(path):
    config = validate_document(PrepareConfig, load_document(path))
    assert config.model_dump(mode="json", exclude_unset=True) == yaml.safe_load(path.read_text())


def test_the_baseline_has_its_sets_at_commits():
    config = validate_document(PrepareConfig, load_document(CONFIGS / "data.yaml"))
    expected = {
        "codecontests_train",
        "codecontests_valid",
        "codecontests_test",
        "humaneval",
        "mbpp_reg",
    }
    assert config.datasets.keys() == expected
    assert all(len(dataset.source.revision) == 40 for dataset in config.datasets.values())
    assert config.datasets["mbpp_reg"].ids == "11-210"
    assert config.datasets["codecontests_train"].role == "train"


HUMANEVAL = {"layout": "humaneval", "source": {"kind": "local", "path": "x.jsonl"}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "datasets"),
        ({"datasets": {}}, "datasets"),
        ({"datasets": {"a/b": HUMANEVAL}}, "the data set's name 'a/b' may only have"),
        ({"datasets": {"a": {**HUMANEVAL, "ids": "9-1"}}}, "ends before it begins"),
        ({"datasets": {"a": {**HUMANEVAL, "layout": "apps"}}}, "layout"),
        ({"datasets": {"a": {**HUMANEVAL, "rol": "train"}}}, "unknown config key"),
        ({"datasets": {"a": {**HUMANEVAL, "source": {"kind": "ftp"}}}}, "source"),
        ({"datasets": {"a": HUMANEVAL}, "manifest": "x"}, "did you mean 'manifests'?"),
    ],
)
def test_a_bad_key_or_value_is_named(document, said):
    with pytest.raises(ConfigError) as caught:
        validate_document(PrepareConfig, document)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
