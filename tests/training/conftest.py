import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.e2e.plumb import DEMO, command, plumb
from tests.e2e.reward import reward_service
from tools.tiny_model import DemoProblem, read_demo

_TRAIN = ("codecontests_valid", "humaneval", "mbpp_reg")


@pytest.fixture(scope="session")
def reward_url() -> Iterator[str]:
    """A reward service that knows the demo's problems, with Redis, judges and a sandbox.

    Its time limit is that of the demo's config; some recorded answers reach it.
    """
    with reward_service(DEMO / "data", "sandbox.timeout=2", allow_eval=True) as service:
        yield service.url


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Training rows of the demo's problems as `plumb data export` writes them for verl."""
    output = tmp_path_factory.mktemp("export") / "verl"
    files = [arg for name in _TRAIN for arg in ("--train", str(DEMO / "data" / f"{name}.parquet"))]
    files += ["--validation", str(DEMO / "data" / "codecontests_test.parquet")]
    config = ["--config", str(DEMO.parent / "configs" / "demo.yaml")]
    done = plumb(
        command("data", "export", *config, *files, "--output", str(output), "--allow-eval")
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(output / "train.parquet").to_pylist()
    return rows


@pytest.fixture
def ray() -> Iterator[Path]:
    """A folder for Ray's sockets, whose paths may not be long."""
    with tempfile.TemporaryDirectory("", "pl-ray-", "/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def problems() -> dict[str, DemoProblem]:
    """The demo's problems by data set and id."""
    return {problem.name: problem for problem in read_demo()}


def name_of(row: dict[str, Any]) -> str:
    """Data set and id of a training row, as in ``problems``."""
    return f"{row['extra_info']['dataset']}/{row['extra_info']['problem_id']}"


def write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
