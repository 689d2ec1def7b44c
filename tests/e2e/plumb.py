"""Runs `plumb` as a subprocess, and reads its output folder."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.cli.fork_server import run_forked

REPOSITORY = Path(__file__).parents[2]
DEMO = REPOSITORY / "demo"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "services.cli", *arguments]


def demo_run(output: Path, *overrides: str) -> list[str]:
    config = ["--config", str(REPOSITORY / "configs/demo.yaml")]
    return command("run", *config, "--embedded", "--output", str(output), *overrides)


def plumb(
    arguments: list[str], timeout: float = 240, sandbox: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``plumb`` to its end, as a fork of a process with its imports.

    Args:
        arguments: Of :func:`command`.
        timeout: In seconds.
        sandbox: URL of one that there is, in place of the command's own.
    """
    given = environment() | ({"SANDBOX_URLS": sandbox} if sandbox else {})
    done = run_forked(arguments[3:], REPOSITORY, given, timeout)
    return subprocess.CompletedProcess(arguments, *done)


@contextmanager
def running(arguments: list[str], output: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that runs in the background; what is left of it is killed at the end."""
    log = output.with_suffix(".log").open("w+")
    process = subprocess.Popen(
        arguments,
        cwd=REPOSITORY,
        stdout=log,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        preexec_fn=take_interrupts,
    )
    try:
        yield process
    finally:
        left = [process.pid, *(child.pid for child in children(process.pid))]
        for pid in left:
            with_process(pid, psutil.Process.kill)
        process.wait()
        log.close()


def take_interrupts() -> None:
    """For a new process: a shell ignores SIGINT in what it starts in the background, as tests.

    So does ``nohup`` with SIGHUP.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_until_gone(processes: Iterable[psutil.Process]) -> None:
    """Wait until all have ended.

    One whose parent has ended stays a zombie where the first process of the machine, as in a
    container, takes no orphans.
    """
    for process in processes:
        wait_for(lambda process=process: not _runs(process), f"the end of {process}")


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def child(pid: int, part: str) -> psutil.Process:
    """The first child whose command line names ``part``."""
    for process in psutil.Process(pid).children():
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if part in " ".join(process.cmdline()):
                return process
    raise AssertionError(f"no {part} among the children of {pid}")


def has_child(pid: int, part: str) -> bool:
    """Whether there is such a child, which may be ending."""
    with suppress(AssertionError, psutil.Error):
        return child(pid, part).is_running()
    return False


def with_process(pid: int, action: Callable[[psutil.Process], object]) -> None:
    try:
        action(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return


def verdicts_so_far(output: Path) -> int:
    """How many verdicts the aggregator of a run in ``output`` has ingested; -1 while it starts."""
    port_file = output / ".plumbline" / "aggregator.port"
    try:
        port = port_file.read_text().strip()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/runs", timeout=30) as answer:
            runs = json.load(answer)
    except (OSError, ValueError):
        return -1
    return sum(run["verdicts"] for run in runs.values())


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 90) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(output: Path) -> dict[str, Any]:
    """What has to come out the same however the run went: everything but times and places."""
    verdicts = read_jsonl(output / "verdicts.jsonl")
    generations = read_jsonl(output / "generations.jsonl")
    summary = json.loads((output / "phase0_summary.json").read_text())
    return {
        "verdicts": [{name: v[name] for name in _VERDICT} for v in verdicts],
        "generations": [{name: g[name] for name in _GENERATION} for g in generations],
        "summary": {
            dataset: {name: value for name, value in metrics.items() if not _timed(name)}
            for dataset, metrics in summary.items()
        },
    }


_SAMPLE = ("dataset", "problem_id", "sample_index", "completion_sha256")
_VERDICT = (*_SAMPLE, "final_status", "detail", "accepted", "pass_ratio", "case_codes", "checker")
_GENERATION = (*_SAMPLE, "completion", "finish_reason", "prompt_tokens", "output_tokens")


_TIMES = ("throughput", "run_throughput", "work_seconds")


def _timed(metric: str) -> bool:
    return "time" in metric.removesuffix("timeout_rate") or metric in _TIMES


# Seconds until the work of a judge that a test kills is judged again.
SHORT_LEASE = {"PLUMBLINE_JUDGE_LEASE_TTL": "3"}


def environment() -> dict[str, str]:
    """The environment without what tests and their runner set for services."""
    ours = ("REDIS_URL", "SANDBOX_URLS", "COVERAGE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
