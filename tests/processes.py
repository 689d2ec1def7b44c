"""A service of this project as a process: started, ready, stopped."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from services.cli.embedded.services import ChildProcess, redis_server, wait_for_redis, wait_until


@contextmanager
def service_process(
    module: str,
    log: Path,
    port_file: Path,
    *,
    python: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] = os.environ,
    **settings: str,
) -> Iterator[tuple[ChildProcess, str]]:
    """Start a service on a free port of loopback; yields it and its base URL when it is ready.

    Args:
        module: Module to execute, such as ``services.sandbox``.
        log: File for its output.
        port_file: File in which it tells its port.
        python: Interpreter, with a command before it.
        environment: Its environment, to which address and ``settings`` are added.
        settings: Variables.

    Raises:
        ServiceError: It ended, or is not ready in time.
    """
    port_file.unlink(missing_ok=True)
    address = {"HOST": "127.0.0.1", "PORT": "0", "PLUMBLINE_PORT_FILE": str(port_file)}
    child = ChildProcess(
        module.rpartition(".")[2],
        [*python, "-m", module],
        log,
        {**environment, **address, **settings},
    )
    child.start()
    try:
        wait_until(port_file.exists, child)
        url = f"http://127.0.0.1:{port_file.read_text().strip()}"
        wait_until(lambda: _is_ready(url), child)
        yield child, url
    finally:
        child.stop(10)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as response:
            return bool(response.status == 200)
    except OSError:
        return False


_MAINS = """
import importlib, json, os, sys
module = importlib.import_module(sys.argv[1] + ".__main__")
for environment in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(environment)
    code = module.main()
    print(json.dumps(code), file=sys.stderr)
"""


def run_mains(module: str, environments: Sequence[Mapping[str, str]]) -> list[tuple[int, str]]:
    """Exit code and stderr of a service's main function in each environment, in one process."""
    done = subprocess.run(
        [sys.executable, "-c", _MAINS, module],
        input=json.dumps(environments),
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    results, lines = [], ""
    for line in done.stderr.splitlines(keepends=True):
        if line.strip().isdecimal():
            results.append((int(line), lines))
            lines = ""
        else:
            lines += line
    return results


def start_redis(
    folder: Path, log: Path, environment: dict[str, str], lock: int
) -> tuple[ChildProcess, str]:
    """Start a Redis server and wait until it answers; returns it with its URL."""
    child, url = redis_server(folder, log, environment, lock)
    child.start()
    wait_for_redis(child, url)
    return child, url
