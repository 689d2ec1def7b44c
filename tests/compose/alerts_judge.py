"""Judge stub, run in the judge's image: wrong canaries, jobs that somebody else wrote, open files.

A sandbox that lies would need a program of its own; what counts and exposes its round is real.
"""

import os
import resource
from pathlib import Path

from prometheus_client import start_http_server

from services.judge.health import JudgeMetrics
from shared.canaries import CanaryFinding, CanaryReport

REPORT = CanaryReport(
    sandbox="http://sandbox:8080",
    profile="batch python programs",
    at=0.0,
    seconds=1.0,
    sent=2,
    wrong=[CanaryFinding(canary="limits", text="memory limit not enforced")],
)

if __name__ == "__main__":
    metrics = JudgeMetrics(concurrency=1)
    metrics.count_canaries(REPORT)
    _, thread = start_http_server(8082, registry=metrics.registry)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    while len([*Path("/proc/self/fd").iterdir()]) < 56:  # the others answer scrapes
        os.open(os.devnull, os.O_RDONLY)
    thread.join()
