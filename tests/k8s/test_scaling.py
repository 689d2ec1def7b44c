"""Autoscaling: workers follow the queue, and no busy worker is stopped."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from services.generator.settings import GeneratorSettings
from services.judge.calls import case_limits
from services.judge.methods.base import Task
from shared.config import Config, load_config
from shared.harness.wire import CaseLimits
from shared.ledger import JudgeQueue, Ledger, keys
from shared.schemas import Generation, Verdict
from tests.judge.workers import Worker
from tests.k8s.cluster import Cluster, env_of
from tests.shared.ledgers import generation, verdict
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


def test_no_problem_of_the_data_has_more_cases(real_data: Path):
    kinds = ("public_tests", "private_tests", "generated_tests")
    with gzip.open(real_data / "code_contests_test_40.jsonl.gz", "rt") as lines:
        counts = [sum(len(row[kind]["input"]) for kind in kinds) for row in map(json.loads, lines)]
    assert max(counts) <= MOST_CASES


def test_a_longer_time_limit_would_be_noticed(minimal: Cluster, baseline: Config):
    slower = baseline.sandbox.model_copy(update={"timeout": 20.0})
    grace = minimal.pod("judge").spec["terminationGracePeriodSeconds"]
    assert longest_job(baseline.model_copy(update={"sandbox": slower}), MOST_CASES) > grace


def test_a_sandbox_has_time_for_the_longest_call(clusters: dict[str, Cluster], baseline: Config):
    call = _limits(baseline, alone=False).call
    assert min(graces(clusters, "sandbox").values()) > call
    for name, cluster in clusters.items():
        environment = env_of(cluster.pod("sandbox").spec["containers"][0])
        assert float(environment.get("PLUMBLINE_SANDBOX_SHUTDOWN_SECONDS", call)) >= call, name


def test_a_generator_has_time_to_drain_and_to_stop(clusters: dict[str, Cluster]):
    settings = GeneratorSettings()
    needed = settings.router_grace + settings.router_stop_timeout
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


def test_a_fixed_number_of_workers_is_waited_for(minimal: Cluster):
    runner = env_of(minimal.pod("runner").spec["containers"][0])
    assert runner["PLUMBLINE_SANDBOX_CHECK"] == "judges"


async def test_a_job_in_hand_is_in_the_second_key_and_not_in_the_first(
    everything: Cluster, redis: Redis, redis_server
):
    seen: list[list[int]] = []
    waiting, _, in_hand, _ = _queue_keys(everything)

    async def look(given: Generation) -> Verdict:
        seen.append([redis.llen(waiting), redis.zcard(in_hand)])
        return verdict(given)

    Ledger(redis, "run").record(generation())
    async with Worker(redis_server.url, "w", judge=look) as worker:
        await worker.judge_all()
    assert seen == [[0, 1]]
    assert redis.zcard(in_hand) == 0


def test_the_reward_service_scales_by_the_core_that_it_requests(everything: Cluster):
    scaler = everything.one("HorizontalPodAutoscaler", "reward")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "reward"
    [metric] = scaler["metrics"]
    assert metric["resource"]["name"] == "cpu"
    container = everything.pod("reward").spec["containers"][0]
    assert container["resources"]["requests"]["cpu"] == "1"
    assert scaler["minReplicas"] > 1


def other_queue(c: Cluster) -> None:
    c.one("ScaledObject", "judge")["spec"]["triggers"][0]["metadata"]["listName"] = (
        "rq:queue:default"
    )


def queue_alone(c: Cluster) -> None:
    del c.one("ScaledObject", "judge")["spec"]["triggers"][2]


@pytest.mark.parametrize("damage", [other_queue, queue_alone])
def test_another_key_would_be_noticed(everything: Cluster, damage: Callable[[Cluster], None]):
    damage(everything)
    with pytest.raises(AssertionError):
        test_keda_looks_at_the_queue_and_at_the_jobs_in_hand(everything)
