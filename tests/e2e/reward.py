"""Runs `plumb reward --embedded` as a subprocess."""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from shared.schemas import Problem, StdioTests, sha256
from tests.e2e import plumb

_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class RewardService:
    """A running reward service with a stack of its own, whose data are below ``folder``."""

    url: str
    process: subprocess.Popen[str]
    folder: Path

    def part(self, name: str) -> psutil.Process:
        """The process of the stack whose command line has ``name``."""
        return plumb.child(self.process.pid, name)


@contextmanager
def reward_service(
    data: Path, *settings: str, allow_eval: bool = False, **environment: str
) -> Iterator[RewardService]:
    """Serve the problems in ``data``; nothing is remembered from before.

    Args:
        data: Parquet file or folder.
        *settings: Overrides of the config, ``key=value``.
        allow_eval: Take data sets for evaluation as training data.
        **environment: Further settings for the environment of all services.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        arguments = ["reward", "--embedded", "--data", str(data), "--port", "0", "--output", folder]
        own = {"PLUMBLINE_REWARD_ALLOW_EVAL": str(allow_eval).lower()}
        with log.open("w") as output:
            process = subprocess.Popen(
                plumb.command(*arguments, *settings),
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                env=plumb.environment() | own | environment,
            )
        try:
            plumb.wait_for(lambda: _said(process, log), "the address of the reward service")
            address = _ADDRESS.search(log.read_text())
            assert address, log.read_text()[-2000:]
            yield RewardService(address.group(), process, Path(folder))
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


def _said(process: subprocess.Popen[str], log: Path) -> bool:
    return bool(_ADDRESS.search(log.read_text())) or process.poll() is not None


def stdio_problem(problem_id: str, tests: StdioTests, dataset: str = "train") -> Problem:
    """A problem of a training set, of which only the tests matter."""
    prompt = f"The problem {problem_id}."
    return Problem(
        dataset=dataset,
        split="train",
        problem_id=problem_id,
        prompt=prompt,
        data_source=dataset,
        ground_truth=tests.model_dump_json(exclude_none=True),
        difficulty="",
        sandbox_dataset=dataset,
        sandbox_id=problem_id,
        prompt_sha256=sha256(prompt),
    )
