"""Alert rules, dashboard and docs/alerts.md query only metrics that the services expose."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
from services.aggregator.metrics import IndexCollector, RedisCollector
from services.generator.router.metrics import RouterMetrics, StateGauges
from services.judge.health import JudgeMetrics
from services.reward.metrics import RewardMetrics
from services.sandbox.admission import Admission
from services.sandbox.metrics import SandboxMetrics
from shared.statuses import FinalStatus
from tests.aggregator.runs import begin, judge
from tests.docs.markdown import sections
from tests.shared.ledgers import problem

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RULES = CONFIGS / "prometheus" / "rules.yml"
ALERTS = CONFIGS.parent / "docs" / "alerts.md"
DASHBOARD = CONFIGS / "grafana" / "dashboards" / "plumbline.json"
_NAME = re.compile(r"\b(?:plumbline[_:]|process_)[a-z0-9_:]+")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)
_SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}


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
    redis.config_set("maxmemory", "1gb")
    names = {name for registry in (aggregator, *of_services()) for name in names_of(registry)}
    redis.config_set("maxmemory", 0)
    ingester.stop()
    database.close()
    return names


def of_services():
    """The registries of judge, reward service, sandbox and generator."""
    own = (
        JudgeMetrics(16),
        RewardMetrics(),
        SandboxMetrics(Admission(1, 1)),
        RouterMetrics(StateGauges(lambda: 0)),
    )
    return [metrics.registry for metrics in own]


def names_of(registry):
    return {
        f"{family.name}{suffix}"
        for family in registry.collect()
        for suffix in _SUFFIXES.get(family.type, [""])
    }


def rules():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panel_queries():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def documented_queries():
    code = [code for section in sections(ALERTS.read_text()) for code in section.code]
    queries = [block.splitlines()[1:-1] for block in code if block.startswith("```promql\n")]
    return [line for lines in queries for line in lines]


def expressions():
    return [rule["expr"] for rule in rules()] + panel_queries() + documented_queries()


def test_every_metric_that_is_asked_for_is_exposed_or_recorded(exposed):
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {name for expression in expressions() for name in _NAME.findall(expression)}
    assert len(asked) > 25
    assert asked - exposed - recorded == set()


def test_every_service_tells_its_file_descriptors():
    for registry in of_services():
        assert {"process_open_fds", "process_max_fds"} <= names_of(registry)


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


@needs_promtool
def test_promtool_accepts_the_rules():
    promtool("check", RULES)


@needs_promtool
@pytest.mark.parametrize("queries", [panel_queries, documented_queries])
def test_promtool_understands_the_queries(tmp_path, queries):
    made = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(queries())]
    assert len(made) > 20
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": made}]}))
    promtool("check", path)


def promtool(command, path):
    asked = ["promtool", command, "rules", path]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def firing(name, labels=None, value=""):
    """An alert as promtool expects it, with the labels and the value of its series."""
    rule = next(rule for rule in rules() if rule.get("alert") == name)
    filled = {"{{ $value | humanize1024 }}": value}
    filled |= {f"{{{{ $labels.{key} }}}}": text for key, text in (labels or {}).items()}
    annotations = dict(rule["annotations"])
    for template, text in filled.items():
        annotations = {key: old.replace(template, text) for key, old in annotations.items()}
    return {"exp_labels": rule["labels"] | (labels or {}), "exp_annotations": annotations}


def expect(tmp_path, name, series, minute, expected):
    """Have promtool evaluate the rules over series, one value a minute."""
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": expected}],
    }
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [case]}
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump(document))
    promtool("test", path)


@needs_promtool
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
    series = {
        "plumbline_runs_running": "1x30",
        "plumbline_last_verdict_timestamp_seconds": last_verdict,
    }
    name = "PlumblineNoProgress"
    expect(tmp_path, name, series, minute, [firing(name)] * fires)


@needs_promtool
@pytest.mark.parametrize(
    ("name", "metric", "values", "minute", "fires"),
    [
        ("PlumblineJudgeQueueAgeing", "judge_queue_oldest_seconds", "0+60x30", 9, False),
        ("PlumblineJudgeQueueAgeing", "judge_queue_oldest_seconds", "0+60x30", 12, True),
        ("PlumblineJudgeQueueAgeing", "judge_queue_oldest_seconds", "250x30", 29, False),
        ("PlumblineLeaseAgeing", "judge_oldest_lease_seconds", "0+60x30", 14, False),
        ("PlumblineLeaseAgeing", "judge_oldest_lease_seconds", "0+60x30", 17, True),
        ("PlumblineLeaseAgeing", "judge_oldest_lease_seconds", "0+60x12 0x20", 17, False),
        ("PlumblineLeaseAgeing", "judge_oldest_lease_seconds", "500x30", 29, False),
        ("PlumblineIndexBehind", "stream_lag", "2000x30", 4, False),
        ("PlumblineIndexBehind", "stream_lag", "2000x30", 6, True),
        ("PlumblineIndexBehind", "stream_lag", "2000x3 0x30", 6, False),
    ],
)
def test_what_waits_too_long(tmp_path, name, metric, values, minute, fires):
    expect(tmp_path, name, {f"plumbline_{metric}": values}, minute, [firing(name)] * fires)


_MIB, _GIB = 2**20, 2**30
_STEADY_3_6 = f"{3.6 * _GIB:.0f}x60"
# A run begins with its problems, a GiB in five minutes, and stays so.
_BEGIN_OF_A_RUN = f"0+{_GIB // 5}x5 {_GIB}x60"


@needs_promtool
@pytest.mark.parametrize(
    ("name", "used", "limit", "minute", "value"),
    [
        ("PlumblineRedisMemoryHigh", _STEADY_3_6, 4 * _GIB, 4, None),
        ("PlumblineRedisMemoryHigh", _STEADY_3_6, 4 * _GIB, 6, "3.6Gi"),
        ("PlumblineRedisMemoryHigh", _STEADY_3_6, 5 * _GIB, 59, None),
        ("PlumblineRedisMemoryHigh", _STEADY_3_6, None, 59, None),  # no maxmemory
        ("PlumblineRedisFillsSoon", f"{2.2 * _GIB:.0f}+{20 * _MIB}x60", 4 * _GIB, 8, None),
        ("PlumblineRedisFillsSoon", f"{2.2 * _GIB:.0f}+{20 * _MIB}x60", 4 * _GIB, 40, ""),
        ("PlumblineRedisFillsSoon", f"{2.2 * _GIB:.0f}+{5 * _MIB}x60", 4 * _GIB, 40, None),
        ("PlumblineRedisFillsSoon", f"{3 * _GIB}-{_MIB}x60", 4 * _GIB, 40, None),
        ("PlumblineRedisFillsSoon", f"{2.2 * _GIB:.0f}+{20 * _MIB}x60", None, 40, None),
        ("PlumblineRedisFillsSoon", _BEGIN_OF_A_RUN, 4 * _GIB, 14, None),
        ("PlumblineRedisFillsSoon", _STEADY_3_6, 4 * _GIB, 59, None),
    ],
)
def test_the_memory_of_redis(tmp_path, name, used, limit, minute, value):
    series = {"plumbline_redis_memory_used_bytes": used}
    if limit:
        series["plumbline_redis_memory_max_bytes"] = f"{limit}x60"
    expected = [] if value is None else [firing(name, value=value)]
    expect(tmp_path, name, series, minute, expected)


@needs_promtool
@pytest.mark.parametrize(
    ("job", "used", "minute", "fires"),
    [
        ("judge", "900x30", 4, False),
        ("judge", "900x30", 6, True),
        ("sandbox", "900x30", 6, True),
        ("judge", "500x30", 29, False),
        ("judge", "900x3 100x30", 6, False),
        ("another application", "900x30", 29, False),
    ],
)
def test_file_descriptors(tmp_path, job, used, minute, fires):
    name, labels = "PlumblineFileDescriptors", {"job": job, "instance": "a:1"}
    chosen = f'{{job="{job}",instance="a:1"}}'
    series = {f"process_open_fds{chosen}": used, f"process_max_fds{chosen}": "1024x30"}
    expect(tmp_path, name, series, minute, [firing(name, labels)] * fires)
