"""Autoscaling: workers follow the queue, and no busy worker is stopped."""

import pytest
from redis import Redis

from services.generator.router.supervisor import STOP_SECONDS
from services.generator.settings import GeneratorSettings
from services.judge.calls import Task, case_limits
from shared.config import Config, load_config
from shared.harness.wire import CaseLimits
from shared.ledger import JudgeQueue, keys
from tests.k8s.cluster import Cluster, env_of
from tools.k8s_validate import ROOT

# Generated tests included, as `include_generated` and `generated_tests` take them.
MOST_CASES = 338


def longest_job(config: Config, cases: int) -> float:
    """Seconds for an answer whose cases all sleep until the wall clock ends them, twice.

    A case that waits for a processor may take longer; the sandbox's are reserved.
    """
    first, alone = (_limits(config, alone) for alone in (False, True))
    return first.compile + cases * first.wall + alone.compile + cases * alone.wall


def _limits(config: Config, alone: bool) -> CaseLimits:
    nothing = None
    return case_limits(Task(nothing, "", config.judge, config.sandbox, nothing, nothing, alone))


@pytest.fixture(scope="module")
def baseline() -> Config:
    return load_config(ROOT / "configs" / "phase0_eval.yaml")


def graces(clusters: dict[str, Cluster], component: str) -> dict[str, float]:
    """Seconds that each target leaves a pod to end."""
    return {
        name: pod.spec["terminationGracePeriodSeconds"]
        for name, cluster in clusters.items()
        for pod in cluster.pods
        if pod.component == component
    }


def test_a_worker_has_time_to_finish_the_longest_job(
    clusters: dict[str, Cluster], baseline: Config
):
    assert min(graces(clusters, "judge").values()) > longest_job(baseline, MOST_CASES)


def test_a_sandbox_has_time_for_the_longest_call(clusters: dict[str, Cluster], baseline: Config):
    call = _limits(baseline, alone=False).call
    assert min(graces(clusters, "sandbox").values()) > call
    for name, cluster in clusters.items():
        environment = env_of(cluster.pod("sandbox").spec["containers"][0])
        assert float(environment.get("PLUMBLINE_SANDBOX_SHUTDOWN_SECONDS", call)) >= call, name


def test_a_generator_has_time_to_drain_and_to_stop(clusters: dict[str, Cluster]):
    needed = GeneratorSettings().router_grace + STOP_SECONDS
    assert min(graces(clusters, "generator").values()) > needed


def test_its_startup_probe_is_as_patient_as_the_generator(clusters: dict[str, Cluster]):
    with_generator = {n: c for n, c in clusters.items() if "generator" in c.names("Deployment")}
    for name, cluster in with_generator.items():
        probe = cluster.pod("generator").spec["containers"][0]["startupProbe"]
        patience = probe["periodSeconds"] * probe["failureThreshold"]
        assert patience > GeneratorSettings().router_start_timeout, name
        runner = env_of(cluster.pod("runner").spec["containers"][-1])
        assert float(runner["PLUMBLINE_WAIT_SECONDS"]) > patience, name


def _queue_keys(cluster: Cluster) -> list[str]:
    triggers = cluster.one("ScaledObject", "judge")["spec"]["triggers"]
    return [trigger["metadata"]["listName"] for trigger in triggers]


def test_keda_looks_at_the_queue_and_at_the_jobs_in_hand(everything: Cluster):
    redis = Redis.from_url("redis://127.0.0.1:1/0")
    queues = [JudgeQueue(name, redis) for name in (keys.JUDGE_QUEUE, keys.REWARD_QUEUE)]
    in_hand = [queue.started_job_registry.key for queue in queues]
    assert _queue_keys(everything) == [*(queue.key for queue in queues), *in_hand]


def test_keda_goes_down_to_none_and_a_run_waits_for_no_worker(everything: Cluster):
    spec = everything.one("ScaledObject", "judge")["spec"]
    assert spec["minReplicaCount"] == 0
    runner = env_of(everything.pod("runner").spec["containers"][0])
    assert runner["PLUMBLINE_SANDBOX_CHECK"] == "none"
    for trigger in spec["triggers"]:
        assert trigger["metadata"]["activationListLength"] == "0"


def test_the_reward_service_scales_by_the_core_that_it_requests(everything: Cluster):
    scaler = everything.one("HorizontalPodAutoscaler", "reward")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "reward"
    [metric] = scaler["metrics"]
    assert metric["resource"]["name"] == "cpu"
    container = everything.pod("reward").spec["containers"][0]
    assert container["resources"]["requests"]["cpu"] == "1"
    assert scaler["minReplicas"] > 1
