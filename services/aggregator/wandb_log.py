"""Logging of results to Weights & Biases, in a child process with a time limit.

A failure is recorded in ``run.json``; it never fails the run.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from shared import artifacts
from shared.artifacts import OutputFolder
from shared.config import WandbConfig
from shared.errors import OutputError, ServiceError
from shared.process_environment import PROXY_VARIABLES
from shared.redaction import redact, without_secrets
from shared.run_record import RunRecord, WandbRecord
from shared.schemas import sha256
from shared.service.logs import get_logger
from shared.service.tokens import read_token

Mode = Literal["online", "offline"]

log = get_logger(__name__)
_KEY = "WANDB_API_KEY"
# Variables that may have secrets, and that the library needs.
_WANDB_NEEDS = ("WANDB_", *PROXY_VARIABLES)
_REMEDY = "; check WANDB_API_KEY, WANDB_BASE_URL and the network where the aggregator runs"
_PROCESS = "services.aggregator.wandb_process"


class WandbDone(BaseModel, frozen=True):
    """Output of the child process: ``path`` of an offline run, ``url`` of an online one."""

    version: str
    path: str | None
    url: str | None


def log_results(folder: OutputFolder, record: RunRecord) -> WandbRecord:
    """Log metrics, config, QA samples and files of a published run.

    Args:
        folder: The run's output folder, with its artifacts.
        record: The content of its ``run.json``.

    Returns:
        The record for ``run.json``: the location of the results, or the errors with remedies.
    """
    errors: dict[str, str] = {}
    try:
        modes = _modes(record.config.wandb)
    except ServiceError as error:
        return WandbRecord(mode="none", online_error=str(error))
    for mode in modes:
        try:
            return _logged(folder, record, mode).model_copy(update=errors)
        except (ServiceError, OutputError, OSError) as error:
            reason = " ".join(str(error).split())
            log.warning("cannot log results to W&B", run=record.run, mode=mode, reason=reason)
            errors[f"{mode}_error"] = f"{reason}{_REMEDY}" if mode == "online" else reason
    return WandbRecord(mode="none").model_copy(update=errors)


def run_id(run: str) -> str:
    """Id of the W&B run; a run that is published again keeps it (idempotent)."""
    return sha256(run)[:16]


def logged_files(record: RunRecord) -> list[str]:
    """Names of the files that are logged, QA logs last."""
    return [*artifacts.FILES, *(log.file for log in record.qa_logs.values())]


def _modes(config: WandbConfig) -> list[Mode]:
    """Modes to try in order: ``auto`` falls back to files that can be uploaded later."""
    if config.mode == "auto":
        return ["online", "offline"] if _key() else ["offline"]
    return [] if config.mode == "disabled" else [config.mode]


def _key() -> str | None:
    """Return the key from the environment, or from the file that ``WANDB_API_KEY_FILE`` names.

    The file may be missing: a pod mounts an optional secret.

    Raises:
        ServiceError: It cannot be read, or is unusable.
    """
    file = os.environ.get(f"{_KEY}_FILE")
    try:
        return read_token(
            os.environ.get(_KEY), file if file and Path(file).exists() else None, _KEY
        )
    except ValueError as error:
        raise ServiceError(str(error)) from None


def _logged(folder: OutputFolder, record: RunRecord, mode: Mode) -> WandbRecord:
    if mode == "online" and not _key():
        raise ServiceError(f"{_KEY} is not set for the aggregator; or use wandb.mode=offline")
    if mode == "offline" and not folder.local:
        raise ServiceError(
            f"offline files need a local output folder, not {folder.url}; set {_KEY}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(folder.path) if folder.local else Path(scratch) / "run"
        if folder.local:
            _remove_earlier(place, run_id(record.run))
        else:
            for name in logged_files(record):
                folder.download(name, place / name)
        done = _run_process(mode, place, Path(scratch), record.config.wandb.timeout)
    return WandbRecord(
        mode=mode,
        run_id=run_id(record.run),
        wandb=done.version,
        url=done.url,
        path=done.path,
        sync=f"wandb sync {done.path}" if done.path else None,
    )


def _remove_earlier(place: Path, name: str) -> None:
    """Remove the files of earlier attempts to log this run, and the copies they refer to."""
    for earlier in (place / "wandb").glob(f"*run-*-{name}"):
        shutil.rmtree(earlier, ignore_errors=True)
    shutil.rmtree(place / "wandb" / "data", ignore_errors=True)


def _run_process(mode: Mode, place: Path, scratch: Path, timeout: float) -> WandbDone:
    # Files instead of pipes, which an orphaned server of the library would keep open.
    stdout, stderr = scratch / "stdout", scratch / "stderr"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", _PROCESS, mode, str(place)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_environment(place, scratch),
            start_new_session=True,  # its process group includes the library's server, for killpg
        )
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise ServiceError(f"not finished after {timeout:g} s (wandb.timeout)") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    try:
        return WandbDone.model_validate_json((_lines(stdout) or [""])[-1])
    except ValidationError:
        reason = redact((_lines(stderr) or ["no reason given"])[-1])[:500]
        raise ServiceError(f"wandb exited with code {code}: {reason}") from None


def _lines(path: Path) -> list[str]:
    return [
        line.strip() for line in path.read_text("utf-8", "replace").splitlines() if line.strip()
    ]


def _environment(place: Path, scratch: Path) -> dict[str, str]:
    hidden = {"WANDB_RUN_ID", "WANDB_MODE", "WANDB_RESUME", "WANDB_NAME", "WANDB_DIR"}
    # Data waiting for upload stays with the run; caches are temporary.
    own = {
        "WANDB_DATA_DIR": str(place / "wandb" / "data"),
        "WANDB_CACHE_DIR": str(scratch / "cache"),
        "WANDB_CONFIG_DIR": str(scratch / "config"),
        "WANDB_ERROR_REPORTING": "false",  # how the library is used and fails, sent to its maker
    }
    given = without_secrets(os.environ, keep=_WANDB_NEEDS)
    if key := _key():
        own[_KEY] = key
    # Compose passes a variable that is not set as an empty one.
    empty = {name for name, value in given.items() if name.startswith("WANDB_") and not value}
    return {name: value for name, value in given.items() if name not in hidden | empty} | own
