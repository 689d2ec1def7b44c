"""The configs of data sets are valid, and their runs name the prepared files."""

from pathlib import Path

import pytest

from services.data.config import PrepareConfig
from shared.config import load_config
from shared.config_files import load_document, validate_document

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("name", ["data", "data_demo", "data_stricter"])
def test_data_sets(name: str) -> None:
    config = validate_document(PrepareConfig, load_document(CONFIGS / f"{name}.yaml", ()))
    assert all(dataset.licence for dataset in config.datasets.values())


def test_cpp_is_another_protocol_for_the_same_files() -> None:
    python = load_config(CONFIGS / "phase0_eval.yaml")
    cpp = load_config(CONFIGS / "baseline_cpp.yaml")
    assert set(cpp.data.eval_files) < set(python.data.eval_files)
    assert (cpp.judge.language, cpp.judge.problem_limits) == ("cpp", True)
    assert cpp.protocol() != python.protocol()
