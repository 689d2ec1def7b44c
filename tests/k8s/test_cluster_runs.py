"""Runs on the cluster of kubectl (`make test-k8s`): the demo, and a thousand samples with faults.

The cluster needs the images of k8s/README.md, and the judge's under the tag ``next`` too.
"""

import json
import re
import subprocess
import time

import pytest

from tests.k8s.cluster import COMPONENT
from tests.k8s.test_cluster import AT_ONCE, call, kubectl, namespace, pytestmark
from tools.k8s_validate import K8S, ROOT

__all__ = ["namespace", "pytestmark"]
# Samples per problem: 58 problems have a thousand.
SAMPLES = 18
KINDS = ("judge", "sandbox", "generator", "redis", "aggregator")
WORKLOADS = ("deployment/judge", "deployment/generator", "deployment/aggregator")


@pytest.fixture(scope="module", autouse=True)
def stack(namespace: None) -> None:
    kubectl("apply", "-k", K8S / "overlays" / "minimal")


def finished(job: str) -> str:
    kubectl("wait", "--for=condition=complete", f"job/{job}", "--timeout=900s")
    return kubectl("logs", f"job/{job}", "--tail=-1")


def verdicts(run: str) -> list[dict]:
    lines = kubectl("exec", "deployment/aggregator", "--", "cat", f"/outputs/{run}/verdicts.jsonl")
    return [json.loads(line) for line in lines.splitlines()]


def recordings() -> tuple[str, dict[str, str]]:
    """Many samples of the demo's answers, and the statuses that they get, by problem.

    Endless ones give way to answers without code, because a thousand would take an hour.
    """
    lines, expected = [], {}
    for line in (ROOT / "demo/completions.jsonl").read_text().splitlines():
        answer = json.loads(line)
        if answer["expected_status"] == "timeout":
            answer |= {"completion": "I cannot.", "expected_status": "syntax_error"}
        expected[answer["problem_id"]] = answer["expected_status"]
        lines += [json.dumps(answer | {"sample_index": n}) for n in range(SAMPLES)]
    return "\n".join(lines), expected


def judged(job: str) -> int:
    """Verdicts that the last line of a run's log tells of; 0 before the pod has started."""
    command = ["kubectl", "-n", "plumbline", "logs", f"job/{job}", "--tail=1"]
    printed = subprocess.run(command, text=True, capture_output=True, check=False).stdout
    return sum(map(int, re.findall(r"judged (\d+)/", printed)))


def wait_for_progress(job: str, verdicts: int) -> None:
    end = time.monotonic() + 300
    while judged(job) < verdicts:
        assert time.monotonic() < end, kubectl("get", "pods") + kubectl("logs", f"job/{job}")
        time.sleep(1)


def kill(selector: str) -> None:
    kubectl("delete", "pod", "-l", selector, *AT_ONCE)


def test_the_demos_table():
    kubectl("create", "job", "demo", "--from=cronjob/run")
    printed = finished("demo")
    assert "58 of 58 samples judged" in printed
    assert re.search(r"accepted@1 +42\.9% +50\.0% +46\.7% +46\.7%", printed)


def test_verdicts_stay_when_pods_are_killed_and_replaced():
    """A thousand samples; beside them a second run, and a judge of another image."""
    recorded, expected = recordings()
    kubectl("create", "configmap", "recordings", "--from-file=answers=/dev/stdin", stdin=recorded)
    volume = {"name": "recordings", "configMap": {"name": "recordings"}}
    mount = {"name": "recordings", "mountPath": "/recordings"}
    patch = [
        {"op": "add", "path": f"/spec/template/spec/{path}/-", "value": value}
        for path, value in (("volumes", volume), ("containers/0/volumeMounts", mount))
    ]
    kubectl("patch", "deployment", "generator", "--type=json", "-p", json.dumps(patch))
    place = "PLUMBLINE_GENERATOR_REPLAY_COMPLETIONS=/recordings/answers"
    kubectl("set", "env", "deployment/generator", place)
    kubectl("rollout", "status", "deployment/generator", "--timeout=300s")
    sampled = ("actor_rollout_ref.rollout.temperature=0.8", "generation.concurrency=4")
    call(K8S / "run.sh", "thousand", f"actor_rollout_ref.rollout.n={SAMPLES}", *sampled)
    wait_for_progress("thousand", 1)
    kubectl("create", "job", "beside", "--from=cronjob/run")
    for number, kind in enumerate(KINDS, start=1):
        wait_for_progress("thousand", 60 * number)
        kill(f"{COMPONENT}={kind}")
    kill("job-name=thousand")
    kubectl("set", "image", "deployment/judge", "judge=plumbline/judge:next")
    kubectl("rollout", "restart", *WORKLOADS)
    assert "58 of 58 samples judged" in finished("beside")
    finished("thousand")
    records = verdicts("thousand")
    assert len({(v["problem_id"], v["sample_index"]) for v in records}) == len(records)
    assert len(records) == len(expected) * SAMPLES
    changed = [v for v in records if v["final_status"] != expected[v["problem_id"]]]
    assert changed == []
