"""Services for screenshots: demo runs, and Redis and an aggregator with them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from services.cli.embedded.services import start_redis
from services.cli.embedded.supervisor import ChildProcess, wait_until
from shared.errors import ServiceError
from shared.json_lines import read_json_lines
from shared.ledger import Ledger
from shared.run_record import RunState
from tools.screenshots.ledger_runs import CHECKPOINTS, RecordedRun, enter_finished

REPOSITORY = Path(__file__).resolve().parents[2]


def run_demo(output: Path, *overrides: str) -> None:
    """Run the demo into ``output``.

    Raises:
        ServiceError: The command failed.
    """
    command = [sys.executable, "-m", "services.cli", "run", "--config", "configs/demo.yaml"]
    options = ["--embedded", "--output", str(output), *overrides]
    done = subprocess.run(
        [*command, *options], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise ServiceError(f"the demo run ended with exit code {done.returncode}: {last}")


def run_checkpoint(folder: Path, name: str) -> Path:
    """Run the demo with fewer of its answers whole, as an earlier checkpoint of a training.

    Returns:
        The run's folder.
    """
    whole = list(CHECKPOINTS).index(name) + 1  # of three
    answers, output = folder / f"{name}.jsonl", folder / name
    with answers.open("w", encoding="utf-8") as file:
        for number, row in read_json_lines(str(REPOSITORY / "demo" / "completions.jsonl")):
            text = str(row["completion"])
            cut = text if number % 3 < whole else text[: len(text) // 2]
            file.write(json.dumps({**row, "completion": cut}) + "\n")
    run_demo(output, f"generation.model={name}", f"generation.replay.completions={answers}")
    return output


@contextmanager
def serving(
    recorded: RecordedRun, checkpoints: Mapping[str, RecordedRun], folder: Path
) -> Iterator[str]:
    """Serve finished runs; yields the aggregator's URL."""
    with (folder / "lock").open("a") as lock:
        redis, url = start_redis(
            folder / "redis", folder / "redis.log", dict(os.environ), lock.fileno()
        )
    client = Redis.from_url(url)
    port = folder / "port"
    aggregator = _aggregator(url, folder, port)
    try:
        finished = [enter_finished(client, recorded, folder / "finished")]
        for hours, (name, run) in enumerate(reversed(list(checkpoints.items())), 1):
            finished.append(enter_finished(client, run, folder / f"{name}-published", name, hours))
        aggregator.start()
        wait_until(port.exists, aggregator)
        for ledger in finished:
            _wait_until_published(ledger)
        yield f"http://127.0.0.1:{port.read_text(encoding='utf-8').strip()}"
    finally:
        aggregator.stop(5.0)
        client.close()
        redis.stop(5.0)


def _aggregator(url: str, folder: Path, port: Path) -> ChildProcess:
    settings = {
        "REDIS_URL": url,
        "PORT": "0",
        "PLUMBLINE_PORT_FILE": str(port),
        "PLUMBLINE_INDEX_DIR": str(folder / "index"),
    }
    command = [sys.executable, "-m", "services.aggregator"]
    return ChildProcess(
        "aggregator", command, folder / "aggregator.log", dict(os.environ) | settings
    )


def _wait_until_published(ledger: Ledger, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not ((state := ledger.state()) and state.published):
        if state is RunState.FAILED or time.monotonic() > deadline:
            meta = ledger.meta()
            reason = (meta and meta.publish_error) or f"not in {timeout:.0f} s"
            raise ServiceError(f"the aggregator did not publish the run: {reason}")
        time.sleep(0.05)
