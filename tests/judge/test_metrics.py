"""Metrics of a judge that meets any number of sandboxes."""

from prometheus_client import generate_latest

from services.judge.health import JudgeMetrics
from shared.canaries import CanaryFinding, CanaryReport


def test_runs_cannot_make_any_number_of_labels() -> None:
    metrics = JudgeMetrics(1)
    for number in range(300):
        url, wrong = f"http://sandbox-{number}:8080", CanaryFinding(canary="right", text="wrong")
        report = CanaryReport(sandbox=url, profile="x", at=1, seconds=1, sent=6, wrong=[wrong])
        metrics.count_canaries(report)
    exposed = generate_latest(metrics.registry).decode()
    counted = [line for line in exposed.splitlines() if "judge_canaries_total{" in line]
    assert len(counted) == 3 * 101
    assert any('sandbox="other"' in line for line in counted)
    assert len(metrics.distrusted) == 100
    assert "http://sandbox-299:8080" in metrics.distrusted
