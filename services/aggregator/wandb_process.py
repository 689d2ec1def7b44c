"""Child process that runs the Weights & Biases library on a run's folder; prints a line of JSON.

The library starts threads and a server, and may wait for the network for a long time. The parent
process enforces a time limit. Usage: ``python -m services.aggregator.wandb_process MODE FOLDER``.
The library reports what it could not upload (metrics or files that a full or broken server refused)
only in its own log, and ends as if all went well, so that log is read.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

import wandb
from pydantic import BaseModel, ValidationError
from wandb.errors import Error

from services.aggregator.qa_logs import QaRecord
from services.aggregator.wandb_log import Mode, WandbDone, logged_files, run_id
from shared import artifacts
from shared.analysis.statistics import MetricValue, flat_metrics
from shared.run_record import RunRecord

_COLUMNS = (
    *("dataset", "problem_id", "sample_index", "final_status", "accepted", "pass_ratio"),
    *("cases_not_run", "prompt", "response", "output_tokens", "total_judge_time"),
    "first_failed_case",
)


# Attempts at a request; the default of 20 takes longer than the time limit.
_RETRIES = 3


def main(mode: Mode, folder: Path) -> None:
    try:
        done = _log(mode, folder)
    except Error as error:
        sys.exit(" ".join(str(error).split()))
    print(done.model_dump_json())


def _log(mode: Mode, folder: Path) -> WandbDone:
    record = RunRecord.model_validate_json((folder / artifacts.RUN).read_text("utf-8"))
    summary = json.loads((folder / artifacts.SUMMARY).read_text("utf-8"))
    config, online = record.config.wandb, mode == "online"
    run = wandb.init(
        project=config.project,
        entity=config.entity,
        name=config.name or record.name or record.run,
        id=run_id(record.run),
        mode=mode,
        dir=str(folder),
        config=record.config.model_dump(mode="json"),
        resume="allow" if online else None,
        settings=_settings(config.timeout),
    )
    logs = [folder / log.file for log in record.qa_logs.values()]
    run.log({**metric_keys(summary), "qa_logs": wandb.Table(list(_COLUMNS), list(_rows(logs)))})
    run.log_artifact(_artifact(record, folder))
    place = Path(run.dir).parent
    done = WandbDone(
        version=wandb.__version__,
        url=run.url if online else None,
        path=None if online else str(place),
    )
    run.finish()
    if failure := library_failure(place):
        sys.exit(failure)
    return done


def _settings(timeout: float) -> wandb.Settings:
    """Settings of the library: nothing about the machine, and an end within the time limit."""
    request, pause = min(30.0, timeout / 8), min(1.0, timeout / 120)
    return wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        save_code=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
        x_graphql_retry_max=_RETRIES,
        x_graphql_retry_wait_min_seconds=pause,
        x_graphql_retry_wait_max_seconds=4 * pause,
        x_graphql_timeout_seconds=request,
        x_file_stream_retry_max=_RETRIES,
        x_file_stream_retry_wait_min_seconds=pause,
        x_file_stream_retry_wait_max_seconds=4 * pause,
        x_file_stream_timeout_seconds=request,
        x_file_transfer_retry_max=_RETRIES,
        x_file_transfer_retry_wait_min_seconds=pause,
        x_file_transfer_retry_wait_max_seconds=4 * pause,
    )


class _LogLine(BaseModel):
    level: str = ""
    msg: str = ""
    error: str = ""


def library_failure(place: Path) -> str | None:
    """Return the first error in the library's log, in one line; None if there is none.

    Args:
        place: The folder of the W&B run.
    """
    try:
        lines = (place / "logs" / "debug-internal.log").read_text("utf-8", "replace").split("\n")
    except OSError:
        return None
    found = [line for line in map(_parsed, lines) if line and line.level.startswith("ERROR")]
    # The line of an HTTP status is followed by one that says what failed by it.
    told = [line for line in found if not line.msg.startswith("api:")] or found
    if not told:
        return None
    return " ".join(": ".join(filter(None, (told[0].msg, told[0].error))).split())


def _parsed(line: str) -> _LogLine | None:
    try:
        return _LogLine.model_validate_json(line)
    except ValidationError:
        return None


def metric_keys(summary: Mapping[str, Mapping[str, MetricValue]]) -> dict[str, float]:
    """Name metrics ``eval/<dataset>/<metric>``; an interval becomes two metrics."""
    return {
        f"eval/{dataset}/{metric}": value
        for dataset, metrics in summary.items()
        for metric, value in flat_metrics(metrics).items()
    }


def _artifact(record: RunRecord, folder: Path) -> wandb.Artifact:
    # W&B allows 128 letters, digits, "-", "_" and ".".
    name = re.sub(r"[^A-Za-z0-9._-]", "_", record.run)[-128:]
    artifact = wandb.Artifact(name, type="results")
    for file in logged_files(record):
        artifact.add_file(str(folder / file), name=file)
    return artifact


def _rows(paths: Iterable[Path]) -> Iterator[list[object]]:
    for path in paths:
        for line in path.read_text("utf-8").split("\n"):
            if line:
                yield _row(QaRecord.model_validate_json(line))


def _row(record: QaRecord) -> list[object]:
    failed = record.execution_output.first_failed_case
    fields = record.model_dump(mode="json", include=set(_COLUMNS))
    values = [fields[name] for name in _COLUMNS[:-1]]
    text = json.dumps(failed.model_dump(mode="json"), ensure_ascii=False) if failed else None
    return [*values, text]


if __name__ == "__main__":
    main(cast(Mode, sys.argv[1]), Path(sys.argv[2]))
