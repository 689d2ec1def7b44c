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
from services.reward.models import ScoreResult
from services.sandbox.admission import Admission
from services.sandbox.metrics import SandboxMetrics
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


_ONCE = "0x5 1x60"  # from the sixth minute on


def _share(part, failed, all_of_them=100):
    """Counters of failures and of all answers, by how many there are in a minute."""
    whole = "reward_results" if part.startswith("reward") else "verdicts"
    return {f"{part}_total": f"0+{failed}x60", f"{whole}_total": f"0+{all_of_them}x60"}


@needs_promtool
@pytest.mark.parametrize(
    ("name", "series", "minute", "fires"),
    [
        ("NoJudges", {"judge_queue_jobs": "3x30", "judge_workers": "0x30"}, 2, True),
        ("NoJudges", {"judge_queue_jobs": "3x30", "judge_workers": "0x1 1x30"}, 4, False),
        ("NoJudges", {"judge_queue_jobs": "0x30", "judge_workers": "0x30"}, 29, False),
        ("SandboxFailing", {'infra_failures_total{reason="a"}': "0+3x30"}, 8, True),
        ("SandboxFailing", {'infra_failures_total{reason="a"}': "0+1x30"}, 29, False),
        ("SandboxFailing", {'infra_failures_total{reason="a"}': "0x5 50x60"}, 20, False),
        ("InfraErrorShare", _share("infra_failures", 6), 20, True),
        ("InfraErrorShare", _share("infra_failures", 4), 59, False),
        ("InfraErrorShare", _share("infra_failures", 1, 0), 20, True),
        ("Unjudged", {'verdicts_total{status="api_error"}': _ONCE}, 7, True),
        ("Unjudged", {'verdicts_total{status="api_error"}': _ONCE}, 20, False),
        ("Unjudged", {'verdicts_total{status="success"}': _ONCE}, 7, False),
        ("SandboxUntrusted", {"judge_sandboxes_distrusted": "0x5 1x5 0x9"}, 7, True),
        ("SandboxUntrusted", {"judge_sandboxes_distrusted": "0x5 1x5 0x9"}, 13, False),
        ("RewardUnjudged", _share("reward_unjudged", 2), 9, True),
        ("RewardUnjudged", _share("reward_unjudged", 1, 101), 59, False),
        ("RewardUnjudged", _share("reward_unjudged", 0, 0), 59, False),
    ],
)  # fmt: skip
def test_what_fails(tmp_path, name, series, minute, fires):
    name, given = f"Plumbline{name}", {f"plumbline_{one}": two for one, two in series.items()}
    expect(tmp_path, name, given, minute, [firing(name)] * fires)


@needs_promtool
@pytest.mark.parametrize(
    ("code", "values", "minute", "fires"),
    [
        ("404", _ONCE, 7, True),
        ("404", _ONCE, 20, False),
        ("429", "0+9x60", 20, False),  # it asks the client to come again
        ("503", "0+9x60", 20, False),
    ],
)
def test_rewards_that_are_refused(tmp_path, code, values, minute, fires):
    name, labels = "PlumblineRewardRefused", {"code": code}
    series = {f'plumbline_reward_refused_total{{code="{code}"}}': values}
    expect(tmp_path, name, series, minute, [firing(name, labels)] * fires)


@needs_promtool
@pytest.mark.parametrize(
    ("signs", "measured", "minute", "fires"),
    [
        ("0+8x90", "0+100x90", 60, True),
        ("0+8x90", "0+100x90", 5, False),
        ("0+4x90", "0+100x90", 60, False),
        ("0+3x90", "0+5x90", 60, False),  # too few answers
    ],
)
def test_signs_of_reward_hacking(tmp_path, signs, measured, minute, fires):
    name, labels = "PlumblineRewardHacking", {"sign": "guard"}
    series = {
        'plumbline_reward_hacking_signs_total{sign="guard"}': signs,
        'plumbline_reward_hacking_measured_total{sign="guard"}': measured,
        'plumbline_reward_hacking_limit{sign="guard"}': f"{LIMITS[Sign.GUARD]}x90",
    }
    expect(tmp_path, name, series, minute, [firing(name, labels)] * fires)


@needs_promtool
@pytest.mark.parametrize(
    ("restarts", "minute", "fires"),
    [("0+1x60", 4, True), ("0x5 2x60", 20, False), ("0x5 4x60", 50, False)],
)
def test_replicas_that_restart(tmp_path, restarts, minute, fires):
    name, labels = "PlumblineReplicaRestarting", {"replica": "1"}
    series = {'plumbline_generator_replica_restarts_total{replica="1"}': restarts}
    expect(tmp_path, name, series, minute, [firing(name, labels)] * fires)


@needs_promtool
@pytest.mark.parametrize(
    ("jobs", "up", "minute", "fires"),
    [
        ("0x5 _x20", "1x30", 6, False),
        ("0x5 _x20", "1x30", 13, True),
        ("0x5 _x3 0x20", "1x30", 20, False),
        ("_x30", "0x30", 20, False),  # that is another alert
    ],
)
def test_redis_that_is_down(tmp_path, jobs, up, minute, fires):
    series = {"plumbline_judge_queue_jobs": jobs, 'up{job="aggregator"}': up}
    name = "PlumblineRedisDown"
    expect(tmp_path, name, series, minute, [firing(name)] * fires)


@needs_promtool
@pytest.mark.parametrize(
    ("up", "minute", "fires"), [("0x9", 2, True), ("1x5 0x0 1x9", 7, False), ("1x5 0x9", 7, True)]
)
def test_a_target_that_is_down(tmp_path, up, minute, fires):
    name, labels = "PlumblineTargetDown", {"job": "judge", "instance": "a:1"}
    series = {'up{job="judge",instance="a:1"}': up}
    expect(tmp_path, name, series, minute, [firing(name, labels)] * fires)


@needs_promtool
@pytest.mark.parametrize(("seconds", "fires"), [(200, True), (62, True), (45, False), (1, False)])
def test_rewards_that_wait(tmp_path, seconds, fires):
    """Over the buckets of the service, whose bounds decide what a quantile can tell."""
    metrics = RewardMetrics()
    metrics.count_result("set", waited(seconds))
    series = {
        f'plumbline_reward_queue_seconds_bucket{{le="{sample.labels["le"]}"}}': (
            f"0+{int(sample.value) * 10}x60"
        )
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "plumbline_reward_queue_seconds_bucket"
    }
    name = "PlumblineRewardWaiting"
    expect(tmp_path, name, series, 30, [firing(name)] * fires)


def test_every_alert_is_tried():
    """In a test above: whether it fires, and whether it does not."""
    tried = set(re.findall(r'"(?:Plumbline)?([A-Z][A-Za-z]+)"', Path(__file__).read_text()))
    alerts = {rule["alert"].removeprefix("Plumbline") for rule in rules() if "alert" in rule}
    assert alerts <= tried


def waited(seconds):
    return ScoreResult(
        score=0.0,
        status=FinalStatus.WRONG_ANSWER,
        judged=True,
        queue_seconds=float(seconds),
        judge_seconds=1.0,
    )
