"""`plumb reward`: the reward service with all that it needs, on this machine."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from services.cli.console import say
from services.cli.embedded.services import reward_service
from services.cli.embedded.stack import EmbeddedStack, open_stack
from services.cli.options import ConfigFile, DataPaths, Overrides
from shared.artifacts import OutputFolder
from shared.config import load_config
from shared.datasets import check_exists
from shared.errors import ConfigError, ServiceError
from shared.verl_keys import notices

_PORT = 8090


def reward(
    overrides: Overrides = None,
    data: DataPaths = None,
    config: ConfigFile = None,
    output: Annotated[str, Option(help="Folder of Redis' data and the logs.")] = "outputs/reward",
    port: Annotated[int, Option(min=0, max=65535, help="Port of the service, 0 for any.")] = _PORT,
    embedded: Annotated[
        bool, Option("--embedded", help="Start Redis, sandbox, judges and the service.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Forget the answers of earlier starts.")] = False,
) -> None:
    """Serve rewards for training: completions judged as in a run, over HTTP."""
    if not embedded:
        raise ConfigError(
            "plumb reward starts a service for this machine only: give --embedded; elsewhere run "
            "`python -m services.reward` beside Redis and judges (docs/training.md)"
        )
    resolved = load_config(config, overrides or [])
    paths = [
        path if "://" in path else str(Path(path).absolute())
        for path in data or resolved.data.eval_files
    ]
    service = partial(reward_service, config=resolved, data=paths, port=port)
    for path in paths:
        check_exists(path)
    if port and _listens(port):
        raise ServiceError(
            f"something else listens on port {port}: choose another one with --port, "
            "and give the trainer the address that is printed"
        )
    folder = OutputFolder(output)
    with (
        suppress(KeyboardInterrupt),
        open_stack(resolved, folder, force=force, generator=False, reward=service) as stack,
    ):
        _announce(stack, paths, notices(resolved.run.verl_keys))
        asyncio.run(stack.watch())
    print("\nstopped")


def _announce(stack: EmbeddedStack, data: Sequence[str], notes: Sequence[str]) -> None:
    """Print the address, then its data and its logs."""
    # Not wrapped by the console: scripts read it.
    print(f"reward service at {stack.reward_url}", flush=True)
    for warning in stack.sandbox.warnings if stack.sandbox else ():
        say(f"warning: {warning}")
    for note in notes:
        say(note)
    files = ", ".join(data) or "none, so only inline tests are judged (--data)"
    for line in (f"data: {files}", f"logs: {stack.folder / 'logs'}", "Ctrl-C stops it"):
        say(line)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
