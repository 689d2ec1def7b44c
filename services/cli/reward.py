"""`plumb reward`: the reward service with all that it needs, on this machine."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Option

from services.cli.console import say
from services.cli.embedded.services import config_file, service
from services.cli.embedded.stack import EmbeddedStack, open_stack
from services.cli.options import ConfigFile, DataPaths, Overrides
from shared.artifacts import OutputFolder
from shared.config import Config, load_config
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
        open_stack(resolved, folder, force=force, generator=False, aggregate=False) as stack,
    ):
        address = _start(stack, resolved, paths, port)
        _announce(address, stack, paths, notices(resolved.run.verl_keys))
        asyncio.run(stack.watch())
    print("\nstopped")


def _start(stack: EmbeddedStack, config: Config, data: Sequence[str], port: int) -> str:
    """Start the service beside those of the stack; returns its address when it is ready."""
    settings = stack.client_settings()
    settings["PLUMBLINE_REWARD_CONFIG"] = config_file(stack.folder / "reward.json", config)
    if data:
        settings["PLUMBLINE_REWARD_DATA"] = ",".join(data)
    if stack.sandbox is not None and stack.sandbox.environment is not None:
        settings["PLUMBLINE_REWARD_ENVIRONMENT"] = stack.sandbox.environment.fingerprint
    child = stack.start(service(stack.folder, "reward", settings, port=port))
    address = child.wait_for_url()
    child.wait_for_report(address)
    return address


def _announce(
    address: str, stack: EmbeddedStack, data: Sequence[str], notes: Sequence[str]
) -> None:
    """Print the address, then its data and its logs."""
    # Not wrapped by the console: scripts read it.
    print(f"reward service at {address}", flush=True)
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
