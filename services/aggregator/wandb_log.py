"""Logging of results to Weights & Biases: as offline files, which ``wandb sync`` uploads.

Both steps are child processes with a time limit, because the library starts threads and a server,
and may wait for the network for a long time. A failure is recorded in ``run.json``; it never fails
the run. Usage of the first step: ``python -m services.aggregator.wandb_log FOLDER``.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from services.aggregator.qa_logs import QaRecord
from shared import artifacts
from shared.analysis.statistics import MetricValue, flat_metrics
from shared.artifacts import OutputFolder
from shared.errors import OutputError, ServiceError
from shared.process_environment import PROXY_VARIABLES
from shared.redaction import redact, without_secrets
from shared.run_record import RunRecord, WandbRecord
from shared.schemas import sha256
from shared.service.access import read_token
from shared.service.logs import get_logger

log = get_logger(__name__)
_KEY = "WANDB_API_KEY"
# Variables that may have secrets, and that the library needs.
_WANDB_NEEDS = ("WANDB_", *PROXY_VARIABLES)
_REMEDY = "check WANDB_API_KEY, WANDB_BASE_URL and the network where the aggregator runs"
_COLUMNS = (
    *("dataset", "problem_id", "sample_index", "final_status", "accepted", "pass_ratio"),
    *("cases_not_run", "prompt", "response", "output_tokens", "total_judge_time"),
    "first_failed_case",
)
_ADVICE = "For further information visit"  # below pydantic's reason why it refuses a setting
_VIEW = re.compile(r"View run at (\S+)")


def log_results(folder: OutputFolder, record: RunRecord) -> WandbRecord:
    """Log metrics, config, QA samples and files of a published run.

    Returns:
        The record for ``run.json``: the location of the results, or the errors with remedies.
    """
    logged = WandbRecord(mode="none", run_id=_run_id(record), wandb=version("wandb"))
    try:
        # The library's server may still write while its folder is removed.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            return _log(folder, record, logged, Path(scratch))
    except (ServiceError, OutputError, OSError) as error:
        return _noted(logged, "offline_error", error)


def _log(
    folder: OutputFolder, record: RunRecord, logged: WandbRecord, scratch: Path
) -> WandbRecord:
    """Write the offline files, whose errors it raises, and upload them if there is a key."""
    place = Path(folder.path) if folder.local else scratch / "run"
    path = _write(folder, record, place, scratch)
    if folder.local:
        sync = shlex.join(["wandb", "sync", str(path)])
        logged = logged.model_copy(update={"mode": "offline", "path": str(path), "sync": sync})
    try:
        key = _key()
        if key is None and folder.local:
            return logged
        url = _upload(path, key, scratch, record.config.wandb.timeout)
    except (ServiceError, OSError) as error:
        return _noted(logged, "online_error", error)
    _remove(place, record)
    uploaded = {"mode": "online", "url": url, "path": None, "sync": None}
    return logged.model_copy(update=uploaded)


def _noted(logged: WandbRecord, name: str, error: Exception) -> WandbRecord:
    reason = " ".join(redact(str(error)).split())[:500]
    log.warning("cannot log results to W&B", reason=reason)
    return logged.model_copy(update={name: reason})


def _run_id(record: RunRecord) -> str:
    """Id of the W&B run; a run that is published again keeps it (idempotent)."""
    return sha256(record.run)[:16]


def _logged_files(record: RunRecord) -> list[str]:
    return [*artifacts.FILES, *(log.file for log in record.qa_logs.values())]


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


def _write(folder: OutputFolder, record: RunRecord, place: Path, scratch: Path) -> Path:
    """Write the offline files of a run below ``place``, in place of earlier ones."""
    if folder.local:
        _remove(place, record)
    else:
        for name in _logged_files(record):
            folder.download(name, place / name)
    command = ["services.aggregator.wandb_log", str(place)]
    _run(command, place, scratch, record.config.wandb.timeout)
    written = list((place / "wandb").glob(f"offline-run-*-{_run_id(record)}"))
    if not written:
        raise ServiceError(f"wandb wrote no files below {place / 'wandb'}; check its variables")
    return written[0]


def _remove(place: Path, record: RunRecord) -> None:
    """Remove the files of earlier attempts to log this run, and the copies they refer to."""
    for earlier in (place / "wandb").glob(f"*run-*-{_run_id(record)}"):
        shutil.rmtree(earlier, ignore_errors=True)
    shutil.rmtree(place / "wandb" / "data", ignore_errors=True)


def _upload(path: Path, key: str | None, scratch: Path, timeout: float) -> str:
    """Upload the offline files of a run; returns the address of the run's page.

    Raises:
        ServiceError: Not all of them could be uploaded.
    """
    if key is None:
        raise ServiceError(
            f"the output folder is no local one, so the results can only be uploaded; set {_KEY}"
        )
    lines = _run(["wandb", "sync", str(path)], path.parent.parent, scratch, timeout, {_KEY: key})
    failure = _failure(scratch)
    if failure or not any("Finished syncing" in line for line in lines):
        raise ServiceError(f"{failure or lines[-1:]}; {_REMEDY}")
    # Printed only if the upload takes a moment.
    view = next((match[1] for line in lines if (match := _VIEW.search(line))), None)
    return view or os.environ.get("WANDB_BASE_URL") or "https://wandb.ai"


def _failure(scratch: Path) -> str:
    """The first error in the library's log, or nothing: ``wandb sync`` always exits with 0."""
    errors: list[str] = []
    for path in (scratch / "wandb" / "logs").glob("debug-sync.*.log"):
        for line in path.read_text("utf-8", "replace").splitlines():
            record = json.loads(line)
            if record["level"].startswith("ERROR"):
                errors.append(": ".join(filter(None, (record["msg"], record.get("error")))))
    # The line of an HTTP status is followed by one that says what failed by it.
    return next((error for error in errors if not error.startswith("api:")), "")


def _run(
    command: list[str],
    place: Path,
    scratch: Path,
    timeout: float,
    extra: dict[str, str] | None = None,
) -> list[str]:
    """Run a module of Python in a child process; returns the lines of its output.

    Raises:
        ServiceError: It failed, or did not end in time.
    """
    # A file instead of a pipe, which an orphaned server of the library would keep open.
    output = scratch / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=_environment(place, scratch) | (extra or {}),
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
    lines = output.read_text("utf-8", "replace").splitlines()
    lines = [line.strip() for line in lines if line.strip() and _ADVICE not in line]
    if code:
        raise ServiceError(f"wandb exited with code {code}: {(lines or ['no reason given'])[-1]}")
    return lines


def _environment(place: Path, scratch: Path) -> dict[str, str]:
    # The agent of a sweep gives the run of its program an id, which is not this run's.
    hidden = {"WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_MODE", "WANDB_RESUME", "WANDB_NAME", _KEY}
    # Data waiting for upload stays with the run; caches are temporary.
    own = {
        "WANDB_DATA_DIR": str(place / "wandb" / "data"),
        "WANDB_DIR": str(scratch),
        "WANDB_CACHE_DIR": str(scratch / "cache"),
        "WANDB_CONFIG_DIR": str(scratch / "config"),
        "WANDB_ERROR_REPORTING": "false",  # how the library is used and fails, sent to its maker
    }
    variables = without_secrets(os.environ, keep=_WANDB_NEEDS)
    # Compose passes a variable that is not set as an empty one.
    empty = {name for name, value in variables.items() if name.startswith("WANDB_") and not value}
    return {name: value for name, value in variables.items() if name not in hidden | empty} | own


# The child process that writes the offline files.


def main(folder: Path) -> None:
    import wandb  # of the aggregator's image alone

    record = RunRecord.model_validate_json((folder / artifacts.RUN).read_text("utf-8"))
    summary = json.loads((folder / artifacts.SUMMARY).read_text("utf-8"))
    config = record.config.wandb
    run = wandb.init(
        project=config.project,
        entity=config.entity,
        name=config.name or record.name or record.run,
        id=_run_id(record),
        mode="offline",
        dir=str(folder),
        config=record.config.model_dump(mode="json"),
        # Nothing about the machine.
        settings=wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
        ),
    )
    logs = [folder / log.file for log in record.qa_logs.values()]
    run.log({**metric_keys(summary), "qa_logs": wandb.Table(list(_COLUMNS), list(_rows(logs)))})
    # W&B allows 128 letters, digits, "-", "_" and ".".
    artifact = wandb.Artifact(re.sub(r"[^A-Za-z0-9._-]", "_", record.run)[-128:], type="results")
    for file in _logged_files(record):
        artifact.add_file(str(folder / file), name=file)
    run.log_artifact(artifact)
    run.finish()


def metric_keys(summary: Mapping[str, Mapping[str, MetricValue]]) -> dict[str, float]:
    """Name metrics ``eval/<dataset>/<metric>``; an interval becomes two metrics."""
    return {
        f"eval/{dataset}/{metric}": value
        for dataset, metrics in summary.items()
        for metric, value in flat_metrics(metrics).items()
    }


def _rows(paths: Iterable[Path]) -> Iterator[list[object]]:
    for path in paths:
        for line in path.read_text("utf-8").split("\n"):
            if line:
                record = QaRecord.model_validate_json(line)
                failed = record.execution_output["first_failed_case"]
                fields = record.model_dump(mode="json", include=set(_COLUMNS))
                text = failed and json.dumps(failed.model_dump(mode="json"), ensure_ascii=False)
                yield [*(fields[name] for name in _COLUMNS[:-1]), text]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
