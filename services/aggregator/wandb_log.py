"""The results of a run in Weights & Biases: never a reason for the run to fail."""

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from services.aggregator.wandb_job import WandbDone, WandbJob
from shared import artifacts
from shared.analysis.statistics import MetricValue, flat_metrics
from shared.artifacts import OutputFolder
from shared.errors import OutputError, ServiceError
from shared.result_config import WandbConfig
from shared.service.logs import get_logger

Mode = Literal["online", "offline"]
Summary = Mapping[str, Mapping[str, MetricValue]]

log = get_logger(__name__)
_KEY = "WANDB_API_KEY"
_PROCESS = "services.aggregator.wandb_process"


def log_results(
    folder: OutputFolder, run: Mapping[str, Any], summary: Summary, config: WandbConfig
) -> dict[str, Any]:
    """Log metrics, config, QA samples and files of a published run.

    Args:
        folder: The run's, with its artifacts.
        run: The content of ``run.json``.
        summary: ``{dataset: {metric: value}}``.
        config: Where to, and how.

    Returns:
        For ``run.json``: where the results are, or why they are not there, and what to do.
    """
    notes: dict[str, Any] = {}
    for mode in _modes(config):
        try:
            return {"mode": mode, **_logged(folder, run, summary, config, mode), **notes}
        except (ServiceError, OutputError, OSError) as error:
            reason = " ".join(str(error).split())
            log.warning("no results in W&B", run=run["run"], mode=mode, reason=reason)
            notes[f"{mode}_error"] = reason
    return {"mode": "none", **notes}


def metric_keys(summary: Summary) -> dict[str, float]:
    """``eval/<dataset>/<metric>``, the plan's keys; an interval is two of them."""
    return {
        f"eval/{dataset}/{metric}": value
        for dataset, metrics in summary.items()
        for metric, value in flat_metrics(metrics).items()
    }


def _modes(config: WandbConfig) -> list[Mode]:
    """What to try: with ``auto``, what cannot be uploaded now is kept for later."""
    if config.mode == "auto":
        return ["online", "offline"] if os.environ.get(_KEY) else ["offline"]
    return [] if config.mode == "disabled" else [config.mode]


def _logged(
    folder: OutputFolder, run: Mapping[str, Any], summary: Summary, config: WandbConfig, mode: Mode
) -> dict[str, Any]:
    if importlib.util.find_spec("wandb") is None:
        raise ServiceError("wandb is not installed; pip install wandb, and run the command again")
    if mode == "online" and not os.environ.get(_KEY):
        raise ServiceError(f"{_KEY} is not set for the aggregator; set it, or take mode offline")
    if mode == "offline" and not folder.local:
        raise ServiceError(
            f"offline files need a local output folder, not {folder.url}; set {_KEY}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(folder.path) if folder.local else Path(scratch) / "run"
        job = _job(_fetched(folder, run, place), place, run, summary, config, mode)
        if folder.local:
            _forget(place, job.run_id)
        done = _in_a_process(job, Path(scratch), config.timeout)
    said = {"run_id": job.run_id, "wandb": done.version}
    if done.path:
        return {**said, "path": done.path, "sync": f"wandb sync {done.path}"}
    return {**said, "url": done.url}


def _job(
    files: dict[str, str],
    place: Path,
    run: Mapping[str, Any],
    summary: Summary,
    config: WandbConfig,
    mode: Mode,
) -> WandbJob:
    name = config.name or str(run.get("name") or run["run"])
    return WandbJob(
        mode=mode,
        project=config.project,
        entity=config.entity,
        name=name,
        run_id=hashlib.sha256(str(run["run"]).encode()).hexdigest()[:16],
        folder=str(place),
        config=dict(run["config"]),
        metrics=metric_keys(summary),
        artifact=_artifact_name(str(run["run"])),
        files=files,
        qa_logs=[path for name, path in files.items() if name.startswith(artifacts.QA_LOGS)],
    )


def _fetched(folder: OutputFolder, run: Mapping[str, Any], place: Path) -> dict[str, str]:
    """Where the run's files are on this machine, where need be after a download."""
    qa_logs = [entry["file"] for entry in run.get("qa_logs", {}).values()]
    names = [*artifacts.FILES, *qa_logs]
    if not folder.local:
        for name in names:
            folder.download(name, place / name)
    return {name: str(place / name) for name in names}


def _artifact_name(run: str) -> str:
    """W&B takes letters, digits, ``-``, ``_`` and ``.``, at most 128."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in run)[-128:]


def _forget(place: Path, run_id: str) -> None:
    """Remove the files of an earlier attempt for this run, and the copies they refer to."""
    for earlier in (place / "wandb").glob(f"*run-*-{run_id}"):
        shutil.rmtree(earlier, ignore_errors=True)
    shutil.rmtree(place / "wandb" / "data", ignore_errors=True)


def _in_a_process(job: WandbJob, scratch: Path, timeout: float) -> WandbDone:
    (scratch / "job.json").write_text(job.model_dump_json(), encoding="utf-8")
    # Files, not pipes, which a server left behind would keep open.
    stdout, stderr = scratch / "stdout", scratch / "stderr"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", _PROCESS, str(scratch / "job.json")],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=_environment(job, scratch),
            start_new_session=True,  # to be ended together with the library's server
        )
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise ServiceError(f"not done after {timeout:g} s (wandb.timeout)") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    try:
        return WandbDone.model_validate_json((_lines(stdout) or [""])[-1])
    except ValidationError:
        reason = (_lines(stderr) or ["no reason given"])[-1][:500]
        raise ServiceError(f"wandb ended with code {code}: {reason}") from None


def _lines(path: Path) -> list[str]:
    return [
        line.strip() for line in path.read_text("utf-8", "replace").splitlines() if line.strip()
    ]


def _environment(job: WandbJob, scratch: Path) -> dict[str, str]:
    hidden = {"WANDB_RUN_ID", "WANDB_MODE", "WANDB_RESUME", "WANDB_NAME", "WANDB_DIR"}
    # What waits to be uploaded stays with the run; the rest of what the library keeps does not.
    data = Path(job.folder) / "wandb" / "data"
    own = {"WANDB_DATA_DIR": str(data), "WANDB_CACHE_DIR": str(scratch / "cache")}
    return {name: value for name, value in os.environ.items() if name not in hidden} | own
