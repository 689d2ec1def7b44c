"""The configs of data sets are valid, and their runs name the prepared files."""

from pathlib import Path

from shared.config import load_config

CONFIGS = Path(__file__).parents[2] / "configs"


def test_cpp_is_another_protocol_for_the_same_files() -> None:
    python = load_config(CONFIGS / "phase0_eval.yaml")
    cpp = load_config(CONFIGS / "baseline_cpp.yaml")
    assert set(cpp.data.eval_files) < set(python.data.eval_files)
    assert (cpp.judge.language, cpp.judge.problem_limits) == ("cpp", True)
    assert cpp.protocol() != python.protocol()
