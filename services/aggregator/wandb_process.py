"""Child process that runs the Weights & Biases library: one job in, one line of JSON out.

The library starts threads and a server, and may wait for the network for a long time. The parent
process enforces a time limit. Usage: ``python -m services.aggregator.wandb_process JOB.json``.

The library reports what it could not upload (metrics or files that a full or broken server refused)
only in its own log, and ends as if all went well, so that log is read.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import wandb
from pydantic import BaseModel, ValidationError
from wandb.errors import Error

from services.aggregator.qa_logs import QaRecord
from services.aggregator.wandb_log import WandbDone, WandbJob

_COLUMNS = (
    *("dataset", "problem_id", "sample_index", "final_status", "accepted", "pass_ratio"),
    *("cases_not_run", "prompt", "response", "output_tokens", "total_judge_time"),
    "first_failed_case",
)


# Attempts at a request; the default of 20 takes longer than the time limit.
_RETRIES = 3


def main(path: str) -> None:
    job = WandbJob.model_validate_json(Path(path).read_text("utf-8"))
    try:
        done = _log(job)
    except Error as error:
        sys.exit(" ".join(str(error).split()))
    print(done.model_dump_json())


def _log(job: WandbJob) -> WandbDone:
    run = wandb.init(
        project=job.project,
        entity=job.entity,
        name=job.name,
        id=job.run_id,
        mode=job.mode,
        dir=job.folder,
        config=job.config,
        resume="allow" if job.mode == "online" else None,
        settings=_settings(job.timeout),
    )
    table = wandb.Table(list(_COLUMNS), list(_rows(job.qa_logs)))
    run.log({**job.metrics, "qa_logs": table})
    run.log_artifact(_artifact(job))
    online = job.mode == "online"
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


def _artifact(job: WandbJob) -> wandb.Artifact:
    artifact = wandb.Artifact(job.artifact, type="results")
    for name, path in job.files.items():
        artifact.add_file(path, name=name)
    return artifact


def _rows(paths: Sequence[str]) -> Iterator[list[object]]:
    for path in paths:
        for line in Path(path).read_text("utf-8").split("\n"):
            if line:
                yield _row(QaRecord.model_validate_json(line))


def _row(record: QaRecord) -> list[object]:
    failed = record.execution_output.first_failed_case
    fields = record.model_dump(mode="json", include=set(_COLUMNS))
    values = [fields[name] for name in _COLUMNS[:-1]]
    text = json.dumps(failed.model_dump(mode="json"), ensure_ascii=False) if failed else None
    return [*values, text]


if __name__ == "__main__":
    main(sys.argv[1])
