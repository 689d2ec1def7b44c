"""Paths of real verl and of a model for it."""

import os
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[1]


def verl_python() -> Path:
    """The interpreter that has verl; skips the test where ``make install-verl`` was not run."""
    if path := os.environ.get("PLUMBLINE_VERL_PYTHON"):
        return Path(path).absolute()
    folder = _REPOSITORY / ".venv-verl"
    _prepared(folder / ".installed", "make install-verl")
    return folder / "bin" / "python"


def tiny_model() -> Path:
    """A model that answers some of the demo's problems; skips where it was not made."""
    if path := os.environ.get("PLUMBLINE_TINY_MODEL"):
        return Path(path)
    return _prepared(_REPOSITORY / "outputs" / "tiny-model", "make tiny-model")


def _prepared(path: Path, how: str) -> Path:
    if not path.exists():
        pytest.skip(f"there is no {path} ({how})")
    return path
