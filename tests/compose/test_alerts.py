"""Compressing the times of a Prometheus configuration changes nothing else."""

import re

import pytest
import yaml

from tests.compose.alerts import compressed
from tests.compose.stack import ROOT

RULES = (ROOT / "configs/prometheus/rules.yml").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scrape_interval: 10s", "scrape_interval: 1s"),
        ("{names: [judge], port: 8082, refresh_interval: 10s}",
         "{names: [judge], port: 8082, refresh_interval: 1s}"),
        ("for: 5m", "for: 5000ms"),
        ("sum(increase(failures_total[10m])) > 10", "sum(increase(failures_total[10000ms])) > 10"),
        ("rate(x[1h]) + rate(y[30s])", "rate(x[60000ms]) + rate(y[500ms])"),
        ("oldest_seconds > 300", "oldest_seconds > 5"),
        ("time() - at_seconds <= 90", "time() - at_seconds <= 1.5"),
        ("plumbline:verdicts:rate5m > 0.05", "plumbline:verdicts:rate5m > 0.05"),
        ("stream_lag > 1000", "stream_lag > 1000"),
    ],
)  # fmt: skip
def test_times_and_nothing_else(text: str, expected: str) -> None:
    assert compressed(text, 60) == expected


def test_the_rules_differ_in_numbers_alone() -> None:
    def skeleton(text: str) -> str:
        return re.sub(r"\d+(\.\d+)?|(?<=\d)m?[smh]\b", "", re.sub(r"\d+m?[smh]\b", "", text))

    fast = compressed(RULES)
    assert fast != RULES
    assert skeleton(fast) == skeleton(RULES)
    assert yaml.safe_load(fast).keys() == yaml.safe_load(RULES).keys()
