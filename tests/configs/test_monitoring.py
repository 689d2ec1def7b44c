"""Alert rules, dashboard and docs/alerts.md query only metrics that the services expose."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from services.aggregator.index.database import open_database
from services.aggregator.ingest import Ingester
from services.aggregator.metrics import AggregatorCollector
from services.generator.router.metrics import RouterMetrics
from services.judge.metrics import JudgeMetrics
from services.reward.metrics import RewardMetrics
from services.reward.models import ScoreResult
from services.sandbox.admission import Admission, SandboxMetrics
from shared.analysis.hacking import LIMITS, Sign
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
    assert ledger.lock("runner", 600.0)
    judge(ledger, "p1", FinalStatus.API_ERROR)
    database = open_database(tmp_path / "index")
    ingester = Ingester(redis, database)
    ingester.catch_up()
    aggregator = CollectorRegistry()
    aggregator.register(AggregatorCollector(redis, database, ingester.metrics))
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
        RouterMetrics(),
    )
    return [metrics.registry for metrics in own]


def names_of(registry):
    return {
        f"{family.name}{suffix}"
        for family in registry.collect()
        for suffix in _SUFFIXES.get(family.type, [""])
    }


@cache
def rules():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panel_queries():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def documented_queries():
    code = [code for section in sections(ALERTS.read_text()) for code in section.code]
    queries = [block.splitlines()[1:] for block in code if block.startswith("promql\n")]
    return [line for lines in queries for line in lines]


def expressions():
    return [rule["expr"] for rule in rules()] + panel_queries() + documented_queries()


def test_every_metric_that_is_asked_for_is_exposed_or_recorded(exposed):
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {name for expression in expressions() for name in _NAME.findall(expression)}
    assert len(asked) > 25
    assert asked - exposed - recorded == set()


def test_every_alert_says_what_to_do():
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 5
    for rule in alerts:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"].endswith(".")


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


_GIB = 2**30
_MEMORY = "redis_memory_used_bytes"
_FULL_AT_4 = {"redis_memory_max_bytes": f"{4 * _GIB}x60"}
_FULL_AT_5 = {"redis_memory_max_bytes": f"{5 * _GIB}x60"}
_USED_3_6 = {_MEMORY: f"{3.6 * _GIB:.0f}x60"}
_ONCE = "0x5 1x60"  # from the sixth minute on
# The labels of an alert, taken from its first series.
_LABELS = {
    "RewardRefused": ("code",),
    "RewardHacking": ("sign",),
    "ReplicaRestarting": ("replica",),
    "TargetDown": ("job", "instance"),
}


def _running(last_verdict):
    return {"runs_running": "1x30", "last_verdict_timestamp_seconds": last_verdict}


def _share(part, failed, all_of_them=100):
    """Counters of failures and of all answers, by how many there are in a minute."""
    whole = "reward_results" if part.startswith("reward") else "verdicts"
    return {f"{part}_total": f"0+{failed}x60", f"{whole}_total": f"0+{all_of_them}x60"}


def _signs(signs, measured):
    made = {"signs_total": signs, "measured_total": measured, "limit": f"{LIMITS[Sign.GUARD]}x90"}
    return {f'reward_hacking_{name}{{sign="guard"}}': values for name, values in made.items()}


def _waiting(seconds):
    """Over the buckets of the service, whose bounds decide what a quantile can tell."""
    metrics = RewardMetrics()
    metrics.count_result("set", waited(seconds))
    return {
        f'{sample.name.removeprefix("plumbline_")}{{le="{sample.labels["le"]}"}}': (
            f"0+{int(sample.value) * 10}x60"
        )
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "plumbline_reward_queue_seconds_bucket"
    }


def waited(seconds):
    return ScoreResult(
        score=0.0,
        status=FinalStatus.WRONG_ANSWER,
        judged=True,
        queue_seconds=float(seconds),
        judge_seconds=1.0,
    )


# An alert, a minute, whether it fires then, and the series, one value a minute.
_TRIED = [
    ("NoProgress", 8, False, _running("_x30")),  # no verdict of any run
    ("NoProgress", 12, True, _running("_x30")),
    ("NoProgress", 12, True, _running("-900000+0x30")),
    ("NoProgress", 25, False, _running("0+60x30")),  # one just now, time and again
    ("NoProgress", 23, True, _running("0+60x10 600+0x20")),
    ("JudgeQueueAgeing", 9, False, {"judge_queue_oldest_seconds": "0+60x30"}),
    ("JudgeQueueAgeing", 12, True, {"judge_queue_oldest_seconds": "0+60x30"}),
    ("LeaseAgeing", 14, False, {"judge_oldest_lease_seconds": "0+60x30"}),
    ("LeaseAgeing", 17, True, {"judge_oldest_lease_seconds": "0+60x30"}),
    ("IndexBehind", 4, False, {"stream_lag": "2000x30"}),
    ("IndexBehind", 6, True, {"stream_lag": "2000x30"}),
    ("RedisMemoryHigh", 6, True, _USED_3_6 | _FULL_AT_4),
    ("RedisMemoryHigh", 59, False, _USED_3_6 | _FULL_AT_5),
    ("RedisMemoryHigh", 59, False, _USED_3_6),  # no maxmemory
    ("NoJudges", 2, True, {"judge_queue_jobs": "3x30", "judge_workers": "0x30"}),
    ("NoJudges", 29, False, {"judge_queue_jobs": "0x30", "judge_workers": "0x30"}),
    ("SandboxFailing", 8, True, {'infra_failures_total{reason="a"}': "0+3x30"}),
    ("SandboxFailing", 20, False, {'infra_failures_total{reason="a"}': "0x5 50x60"}),
    ("Unjudged", 7, True, {'verdicts_total{status="api_error"}': _ONCE}),
    ("Unjudged", 7, False, {'verdicts_total{status="success"}': _ONCE}),
    ("SandboxUntrusted", 7, True, {"judge_sandboxes_distrusted": "0x5 1x5 0x9"}),
    ("SandboxUntrusted", 13, False, {"judge_sandboxes_distrusted": "0x5 1x5 0x9"}),
    ("RewardUnjudged", 9, True, _share("reward_unjudged", 2)),
    ("RewardUnjudged", 59, False, _share("reward_unjudged", 1, 101)),
    ("RewardUnjudged", 59, False, _share("reward_unjudged", 0, 0)),
    ("RewardRefused", 7, True, {'reward_refused_total{code="404"}': _ONCE}),
    # These ask the client to come again.
    ("RewardRefused", 20, False, {'reward_refused_total{code="429"}': "0+9x60"}),
    ("RewardHacking", 60, True, _signs("0+8x90", "0+100x90")),
    ("RewardHacking", 60, False, _signs("0+4x90", "0+100x90")),
    ("RewardHacking", 60, False, _signs("0+3x90", "0+5x90")),  # too few answers
    ("ReplicaRestarting", 4, True, {'generator_replica_restarts_total{replica="1"}': "0+1x60"}),
    ("ReplicaRestarting", 50, False, {'generator_replica_restarts_total{replica="1"}': "0x5 4x60"}),
    ("RedisDown", 13, True, {"judge_queue_jobs": "0x5 _x20", 'up{job="aggregator"}': "1x30"}),
    ("RedisDown", 20, False, {"judge_queue_jobs": "0x5 _x3 0x20", 'up{job="aggregator"}': "1x30"}),
    # That is another alert.
    ("RedisDown", 20, False, {"judge_queue_jobs": "_x30", 'up{job="aggregator"}': "0x30"}),
    ("TargetDown", 7, False, {'up{job="judge",instance="a:1"}': "1x5 0x0 1x9"}),
    ("TargetDown", 7, True, {'up{job="judge",instance="a:1"}': "1x5 0x9"}),
    ("RewardWaiting", 30, True, _waiting(62)),
    ("RewardWaiting", 30, False, _waiting(45)),
]


def _case(name, minute, fires, series):
    """A case of promtool, with the alert as it expects it."""
    alert = f"Plumbline{name}"
    rule = next(rule for rule in rules() if rule.get("alert") == alert)
    labelled = dict(re.findall(r'(\w+)="(.*?)"', next(iter(series))))
    labels = {key: labelled[key] for key in _LABELS.get(name, ())}
    filled = {f"{{{{ $labels.{key} }}}}": text for key, text in labels.items()}
    annotations = dict(rule["annotations"])
    for template, text in (filled | {"{{ $value | humanize1024 }}": "3.6Gi"}).items():
        annotations = {key: old.replace(template, text) for key, old in annotations.items()}
    expected = {"exp_labels": rule["labels"] | labels, "exp_annotations": annotations}
    tested = {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": [expected] * fires}
    values = [
        {
            "series": name if name.startswith(("up", "process")) else f"plumbline_{name}",
            "values": each,
        }
        for name, each in series.items()
    ]
    return {"interval": "1m", "input_series": values, "alert_rule_test": [tested]}


@needs_promtool
def test_each_alert_fires_when_it_should_and_only_then(tmp_path):
    cases = [_case(*row) for row in _TRIED]
    path = tmp_path / "test.yml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}
    path.write_text(yaml.safe_dump(document))
    promtool("test", path)


def test_every_alert_is_tried_both_ways():
    alerts = {rule["alert"].removeprefix("Plumbline") for rule in rules() if "alert" in rule}
    assert {(name, fires) for name, _, fires, _ in _TRIED} == {
        (name, fires) for name in alerts for fires in (True, False)
    }
