"""The Prometheus operator's rules equal configs/prometheus/rules.yml."""

import yaml

from tests.k8s.cluster import Cluster
from tools.k8s_validate import RULES, RULES_COPY, prometheus_rule


def test_the_copy_is_what_the_rules_make():
    copy = yaml.safe_load(RULES_COPY.read_text())
    assert copy == prometheus_rule(), "python -m tools.k8s_validate --write-rules"


def test_no_alert_is_lost_and_none_is_about_other_targets(everything: Cluster):
    rules = yaml.safe_load(RULES.read_text())["groups"]
    groups = everything.one("PrometheusRule", "plumbline")["spec"]["groups"]
    assert [[rule.get("alert") for rule in group["rules"]] for group in groups] == [
        [rule.get("alert") for rule in group["rules"]] for group in rules
    ]
    expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    assert all("plumbline" in text or "job=~" in text for text in expressions)


def test_the_dashboard_comes_along(everything: Cluster):
    dashboard = everything.one("ConfigMap", "plumbline-grafana-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
