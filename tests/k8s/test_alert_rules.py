"""The Prometheus operator's rules equal configs/prometheus/rules.yml."""

import yaml

from tools.k8s_validate import RULES_COPY, prometheus_rule


def test_the_copy_is_what_the_rules_make():
    copy = yaml.safe_load(RULES_COPY.read_text())
    assert copy == prometheus_rule(), "python -m tools.k8s_validate --write-rules"
