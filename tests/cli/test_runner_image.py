"""Commands in an installation like the runner's image: its lock's distributions, its services."""

import importlib
import importlib.metadata
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from services.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "packaging" / "images" / "runner.lock"
DOCKERFILE = ROOT / "services" / "runner" / "Dockerfile"
RUN = ROOT / "tests" / "fixtures" / "finished_run"
# Runs commands in one process, because imports take most of their time.
PROGRAM = """
import sys
from services.cli.commands import app
for line in sys.stdin.read().splitlines():
    code = 0
    try:
        app(line.split("\\t"), standalone_mode=False)
    except SystemExit as end:
        code = end.code
    except Exception as error:
        code = repr(error)
    print("\\nENDED", line.replace("\\t", " "), code or 0, flush=True)
"""


def locked() -> list[str]:
    return re.findall(r"^([A-Za-z0-9._-]+)==", LOCK.read_text("utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of links to what the image has on its path."""
    folder = tmp_path_factory.mktemp("image")
    for name in locked():
        try:
            link_distribution(importlib.metadata.distribution(name), folder)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
    services = folder / "services"
    services.mkdir()
    for source in re.findall(r"^COPY (shared|services/\S+) ", DOCKERFILE.read_text(), re.MULTILINE):
        (folder / source).symlink_to(ROOT / source)
    return folder


def link_distribution(distribution: Distribution, folder: Path) -> None:
    tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    # Of a package that an old pip installed, the files are relative to another folder.
    for top in tops | set((distribution.read_text("top_level.txt") or "").split()):
        link = folder / top
        if not link.exists() and Path(str(distribution.locate_file(top))).exists():
            link.symlink_to(Path(str(distribution.locate_file(top))).resolve())


def commands(image: Path, tmp_path: Path, *lines: list[str]) -> tuple[dict[str, str], str]:
    """Run commands; return the exit code or exception of each, and all output."""
    done = python(image, tmp_path, PROGRAM, "\n".join("\t".join(line) for line in lines))
    ended = dict(re.findall(r"^ENDED (.*) (\S+)$", done.stdout, re.MULTILINE))
    return ended, done.stdout + done.stderr


def python(
    image: Path, tmp_path: Path, program: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(image), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-S", "-P", "-c", program],
        input=given,
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_every_command_is_there_and_those_for_finished_runs_and_data_work(
    image: Path, tmp_path: Path
) -> None:
    runs, data = tmp_path / "runs", ROOT / "demo" / "data"
    runs.mkdir()
    run = str(runs / "one")
    shutil.copytree(RUN, run)
    lines = [
        *([name, "--help"] for name in COMMANDS),
        ["show", run],
        ["runs", str(runs)],
        ["compare", run, run],
        ["report", run, "--out", str(tmp_path / "report.html")],
        *(
            ["export", run, "--format", form, "--output", str(tmp_path / form)]
            for form in ("inspect", "hf-parquet")
        ),
        ["data", "check", str(data)],
    ]
    gate = ["gate", run, run, "--policy", str(ROOT / "configs" / "gate.yaml")]
    ended, output = commands(image, tmp_path, *lines, gate)
    assert {" ".join(line): "0" for line in lines}.items() <= ended.items(), output
    assert "UndecidedError('inconclusive: " in output  # the gate's result for so few problems


def test_what_is_imported_later_is_there_too(image: Path, tmp_path: Path) -> None:
    packages = ["services.data", "services.exports", "services.runner", "services.training"]
    names = [found.name for name in packages for found in walk(name)]
    libraries = ["datasets", "pandas", "pyarrow.dataset", "huggingface_hub", "hf_xet"]
    program = f"import importlib\nfor name in {names + libraries}: importlib.import_module(name)"
    assert python(image, tmp_path, program).returncode == 0
    # The path really is the image's: this library belongs to another service.
    assert "No module named 'wandb'" in python(image, tmp_path, "import wandb").stderr


def walk(package: str) -> Iterator[pkgutil.ModuleInfo]:
    paths = importlib.import_module(package).__path__
    return pkgutil.walk_packages(paths, f"{package}.")
