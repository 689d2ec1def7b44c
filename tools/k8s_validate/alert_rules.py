"""PrometheusRule manifest generated from configs/prometheus/rules.yml."""

import yaml

from tools.k8s_validate.render import K8S, ROOT, Document

SOURCE = ROOT / "configs" / "prometheus" / "rules.yml"
COPY = K8S / "components" / "monitoring" / "rules.yaml"
_HEAD = "# Made of configs/prometheus/rules.yml by `python -m tools.k8s_validate --write-rules`.\n"
# A cluster's Prometheus also scrapes targets of other applications.
_PLUMBLINE_DOWN = 'up{job=~"aggregator|generator|judge|reward|sandbox"} == 0'


def prometheus_rule() -> Document:
    rules: Document = yaml.safe_load(SOURCE.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if rule["expr"] == "up == 0":
                rule["expr"] = _PLUMBLINE_DOWN
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "plumbline", "labels": {"app.kubernetes.io/part-of": "plumbline"}},
        "spec": rules,
    }


def write() -> None:
    COPY.write_text(_HEAD + yaml.safe_dump(prometheus_rule(), sort_keys=False, width=1000))
