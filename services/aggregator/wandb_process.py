"""Child process that runs the Weights & Biases library: one job in, one line of JSON out.

The library starts threads and a server, and may wait for the network for a long time. The parent
process enforces a time limit. Usage: ``python -m services.aggregator.wandb_process JOB.json``.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import wandb  # type: ignore[import-not-found, unused-ignore]

from services.aggregator.qa_logs import QaRecord
from services.aggregator.wandb_log import WandbDone, WandbJob

_COLUMNS = (
    *("dataset", "problem_id", "sample_index", "final_status", "accepted", "pass_ratio"),
    *("cases_not_run", "prompt", "response", "output_tokens", "total_judge_time"),
    "first_failed_case",
)


def main(path: str) -> None:
    job = WandbJob.model_validate_json(Path(path).read_text("utf-8"))
    run = wandb.init(
        project=job.project,
        entity=job.entity,
        name=job.name,
        id=job.run_id,
        mode=job.mode,
        dir=job.folder,
        config=job.config,
        resume="allow" if job.mode == "online" else None,
        settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
    )
    run.log({**job.metrics, "qa_logs": wandb.Table(list(_COLUMNS), list(_rows(job.qa_logs)))})
    run.log_artifact(_artifact(job))
    online = job.mode == "online"
    done = WandbDone(
        version=wandb.__version__,
        url=run.url if online else None,
        path=None if online else str(Path(run.dir).parent),
    )
    run.finish()
    print(done.model_dump_json())


def _artifact(job: WandbJob) -> Any:  # noqa: ANN401 - the library may be missing where mypy runs
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
