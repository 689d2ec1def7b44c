"""Judge stub, run in the judge's image: wrong canaries, jobs that somebody else wrote, open files.

A sandbox that lies would need a program of its own; what counts and exposes its round is real.
"""

import os
import resource
from pathlib import Path

from prometheus_client import start_http_server

from services.judge.health import JudgeMetrics
from shared.schemas import Verdict
from shared.statuses import FinalStatus, JudgeMethod

ROUND = Verdict(
    dataset="http://sandbox:8080",
    problem_id="programs",
    sample_index=0,
    completion_sha256="0" * 64,
    final_status=FinalStatus.WRONG_ANSWER,
    detail="memory limit not enforced",
    accepted=False,
    pass_ratio=0.5,
    cases_passed=1,
    cases_total=2,
    total_judge_time=0.0,
    error_breakdown={},
    method=JudgeMethod.BATCH,
    checker="tokens",
    attempts=1,
    worker="stub",
    judged_at=0.0,
)

if __name__ == "__main__":
    metrics = JudgeMetrics(concurrency=1)
    metrics.count_canaries(ROUND)
    _, thread = start_http_server(8082, registry=metrics.registry)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    while len([*Path("/proc/self/fd").iterdir()]) < 56:  # the others answer scrapes
        os.open(os.devnull, os.O_RDONLY)
    thread.join()
