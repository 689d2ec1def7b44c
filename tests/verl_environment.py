"""Paths of real verl and of a model for it."""

import os
import time
from pathlib import Path

import psutil
import pytest

_REPOSITORY = Path(__file__).resolve().parents[1]
_SECONDS = 900.0


def verl_python() -> Path:
    """The interpreter that has verl; skips the test where ``make install-verl`` was not run."""
    if given := os.environ.get("PLUMBLINE_VERL_PYTHON"):
        return Path(given).absolute()
    folder = _REPOSITORY / ".venv-verl"
    _prepared(folder / ".installed", "make install-verl")
    return folder / "bin" / "python"


def tiny_model() -> Path:
    """A model that answers some of the demo's problems; skips where it was not made."""
    if given := os.environ.get("PLUMBLINE_TINY_MODEL"):
        return Path(given)
    return _prepared(_REPOSITORY / "outputs" / "tiny-model", "make tiny-model")


def _prepared(path: Path, how: str) -> Path:
    """Wait for what the process ``PLUMBLINE_VERL_PREPARER`` is making."""
    if preparer := os.environ.get("PLUMBLINE_VERL_PREPARER"):
        give_up = time.monotonic() + _SECONDS
        while not path.exists() and at_work(int(preparer)) and time.monotonic() < give_up:
            time.sleep(1)
        assert path.exists(), f"{how} failed, or took longer than {_SECONDS:.0f} s"
    if not path.exists():
        pytest.skip(f"there is no {path} ({how})")
    return path


def at_work(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
