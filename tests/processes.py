"""A service of this project as a process: started, ready, stopped."""

import os
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from services.cli.embedded.supervisor import ChildProcess, wait_until


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
