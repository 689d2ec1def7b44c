"""verl's own scorer, from the installed package or from the pinned wheel alone.

verl as a whole imports Ray and PyTorch; its scorer for SandboxFusion needs ``requests`` alone. So
where verl is not installed, the wheel that ``requirements.txt`` pins is unpacked into a folder of
the user's cache, and only the package ``sandbox_fusion`` in it is imported, under its own name.
"""

import hashlib
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

NAME = "verl.utils.reward_score.sandbox_fusion"
# Names a wheel of verl on disk; wheels beside it are used too. Without it pip asks its index.
WHEEL = "PLUMBLINE_VERL_WHEEL"
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_SECONDS = 60


class ScorerMissingError(Exception):
    """verl's scorer cannot be had here; the message says why."""


@cache
def load() -> Mapping[str, ModuleType]:
    """Import the scorer and its ``utils``: the modules by name, not left in ``sys.modules``.

    Raises:
        ScorerMissingError: verl is not installed, and its wheel cannot be had either.
    """
    with _own_modules():
        try:
            importlib.import_module(NAME)
        except ImportError:
            _import_from(_unpacked())
        return {name: sys.modules[name] for name in (NAME, f"{NAME}.utils")}


@contextmanager
def _own_modules() -> Iterator[None]:
    # No test may find verl, or what it needs, through what another one loaded.
    path, before = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in [name for name in set(sys.modules) - before if name.startswith("verl")]:
            del sys.modules[name]


def _import_from(folder: Path) -> None:
    sys.path.append(str(folder))  # for requests
    package = folder.joinpath(*NAME.split("."))
    spec = importlib.util.spec_from_file_location(
        NAME, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ScorerMissingError(f"{package} is no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError) as error:
        raise ScorerMissingError(f"cannot import verl's scorer: {error}") from None


def _unpacked() -> Path:
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    pins = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = cache_home / "plumbline" / f"verl-{pins}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        _install(Path(made, "verl"))
        try:
            Path(made, "verl").rename(folder)
        except OSError:
            if not folder.is_dir():  # else another test run was faster
                raise
    return folder


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--retries", "1"]
    command += ["--target", str(folder), "--requirement", str(_REQUIREMENTS)]
    if wheel := os.environ.get(WHEEL):
        command += ["--find-links", str(Path(wheel).resolve().parent)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise ScorerMissingError(f"pip did not get verl within {_SECONDS} s") from None
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.startswith("ERROR")][-1:]
        raise ScorerMissingError(f"verl is not installed and pip cannot get it: {' '.join(last)}")
