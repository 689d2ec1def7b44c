"""Metrics of a judge that meets any number of sandboxes."""

from prometheus_client import generate_latest

from services.judge.health import JudgeMetrics
from shared.schemas import SampleId
from shared.statuses import FinalStatus
from tests.shared.ledgers import generation, verdict


def test_runs_cannot_make_any_number_of_labels() -> None:
    metrics = JudgeMetrics(1)
    for number in range(300):
        round_ = generation(SampleId(f"http://sandbox-{number}:8080", "batch/python"))
        metrics.count_canaries(verdict(round_, FinalStatus.WRONG_ANSWER, detail="wrong"))
    exposed = generate_latest(metrics.registry).decode()
    counted = [line for line in exposed.splitlines() if "judge_canaries_total{" in line]
    assert len(counted) == 3 * 101
    assert any('sandbox="other"' in line for line in counted)
    assert len(metrics.distrusted) == 100
    assert "http://sandbox-299:8080" in metrics.distrusted
