"""Alert rules and dashboard query only metrics that the services expose."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
from services.aggregator.metrics import IndexCollector, RedisCollector
from services.generator.router.metrics import RouterMetrics
from services.judge.health import JudgeMetrics
from services.reward.metrics import RewardMetrics
from services.sandbox.admission import Admission
from services.sandbox.metrics import SandboxMetrics
from shared.statuses import FinalStatus
from tests.aggregator.runs import begin, judge
from tests.shared.ledgers import problem

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RULES = CONFIGS / "prometheus" / "rules.yml"
DASHBOARD = CONFIGS / "grafana" / "dashboards" / "plumbline.json"
_NAME = re.compile(r"\bplumbline[_:][a-z0-9_:]+")
_SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}


class NoGauges(Collector):
    def collect(self) -> list[Metric]:
        return []


@pytest.fixture
def exposed(redis, tmp_path):
    """Names of all samples of all services, those of families without one as yet included."""
    ledger = begin(redis, [problem("p1"), problem("p2")])
    judge(ledger, "p1", FinalStatus.API_ERROR)
    database = open_database(tmp_path / "index")
    ingester = Ingester(redis, database)
    ingester.catch_up()
    aggregator = CollectorRegistry()
    aggregator.register(IndexCollector(database, ingester.metrics))
    aggregator.register(RedisCollector(redis, database))
    own = (
        JudgeMetrics(16),
        RewardMetrics(),
        SandboxMetrics(Admission(1, 1)),
        RouterMetrics(NoGauges()),
    )
    registries = [aggregator, *(metrics.registry for metrics in own)]
    names = {
        f"{family.name}{suffix}"
        for registry in registries
        for family in registry.collect()
        for suffix in _SUFFIXES.get(family.type, [""])
    }
    ingester.stop()
    database.close()
    return names


def rules():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    return [rule["expr"] for rule in rules()] + asked


def test_every_metric_that_is_asked_for_is_exposed_or_recorded(exposed):
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {name for expression in expressions() for name in _NAME.findall(expression)}
    assert len(asked) > 15
    assert asked - exposed - recorded == set()


def test_every_alert_says_what_to_do():
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 5
    for rule in alerts:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"].endswith(".")


def test_panels_do_not_lie_on_one_another():
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules():
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("last_verdict", "minute", "fires"),
    [
        ("_x30", 8, False),  # none at all, of any run
        ("_x30", 12, True),
        ("-900000+0x30", 8, False),  # that of a run ten days ago
        ("-900000+0x30", 12, True),
        ("0+60x30", 25, False),  # one just now, time and again
        ("0+60x10 600+0x20", 19, False),
        ("0+60x10 600+0x20", 23, True),
    ],
)
def test_no_progress_counts_from_the_runs_begin(tmp_path, last_verdict, minute, fires):
    alert = next(rule for rule in rules() if rule.get("alert") == "PlumblineNoProgress")
    expected = {"exp_labels": alert["labels"], "exp_annotations": alert["annotations"]}
    series = {
        "plumbline_runs_running": "1x30",
        "plumbline_last_verdict_timestamp_seconds": last_verdict,
    }
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{minute}m",
                "alertname": alert["alert"],
                "exp_alerts": [expected] * fires,
            }
        ],
    }
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
