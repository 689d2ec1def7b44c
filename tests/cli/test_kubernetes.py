"""Pods that are not ready, from what the API server lists."""

from datetime import UTC, datetime

import pytest

from services.cli.kubernetes import describe, unready_pods

START = "2026-01-01T00:00:00Z"
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC).timestamp()


def pod(name: str, *, ready: bool = False, owner: str = "ReplicaSet", **status: object) -> dict:
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": START}]
    reason = status.pop("unschedulable", None)
    if reason:
        conditions.append({"type": "PodScheduled", "status": "False", "message": reason})
    owners = [{"kind": owner}]
    meta = {"name": name, "uid": name, "creationTimestamp": START, "ownerReferences": owners}
    return {"metadata": meta, "status": {"phase": "Pending", "conditions": conditions, **status}}


def waits(reason: str) -> list[dict]:
    return [{"state": {"waiting": {"reason": reason, "message": "m"}}}]


def event(name: str, message: str) -> dict:
    return {"type": "Warning", "message": message, "involvedObject": {"uid": name}}


@pytest.mark.parametrize(
    ("broken", "events", "reason", "remedy"),
    [
        (pod("g", unschedulable="0/1 nodes are available: 1 Insufficient nvidia.com/gpu."), [],
         "Insufficient nvidia.com/gpu", "device plugin"),
        (pod("r", unschedulable="pod has unbound immediate PersistentVolumeClaims"), [],
         "unbound", "storage class"),
        (pod("j", containerStatuses=waits("ContainerCreating")),
         [event("j", "references non-existent secret key: judge")],
         "secret key: judge", "k8s/secrets.sh"),
        (pod("s", containerStatuses=waits("ImagePullBackOff")), [],
         "ImagePullBackOff", "load or push the image"),
        (pod("a", containerStatuses=waits("CrashLoopBackOff"), phase="Running"), [],
         "CrashLoopBackOff", "logs a --previous"),
    ],
)  # fmt: skip
def test_a_pod_is_named_with_time_reason_and_remedy(
    broken: dict, events: list[dict], reason: str, remedy: str
):
    [line] = describe([broken], events, NOW)
    assert line.startswith(f"{broken['metadata']['name']} is ")
    for part in ("for 60 s", reason, remedy):
        assert part in line


def test_pods_that_are_ready_new_or_of_runs_are_left_out():
    assert describe([pod("a", ready=True), pod("run", owner="Job")], [], NOW) == []
    assert describe([pod("new")], [], NOW - 55) == []


def test_outside_a_cluster_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert unready_pods() == []
