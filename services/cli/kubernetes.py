"""Pods that are not ready, read from the API server of the cluster that a run is in."""

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Seconds; a healthy pod is ready by then, if its image is there.
_SHORTEST = 20.0
_SECRETS = "create what is missing: k8s/secrets.sh, or the Secret's command in k8s/README.md"
_IMAGES = "load or push the image, and name it in the overlay: k8s/README.md, Images"
_REMEDIES = {
    "secret": _SECRETS,
    "configmap": "create it: k8s/README.md, or kubectl apply -k the overlay again",
    "persistentvolumeclaim": "set a default storage class, or storageClassName in the claims",
    "nvidia.com/gpu": "free or add GPUs, or install NVIDIA's device plugin",
    "ImagePull": _IMAGES,
    "node affinity": "install NVIDIA's GPU feature discovery, which labels nodes with GPUs",
    "insufficient": "add a node, or lower resources.requests in the overlay",
    "taint": "remove the node's taint, or add a toleration in the overlay",
    "CrashLoop": "kubectl -n plumbline logs POD --previous",
}

Resource = dict[str, Any]  # foreign JSON


def unready_pods() -> list[str]:
    """Return a line for each pod of the namespace that is pending or unready, with the remedy.

    Pods of Jobs are left out. Empty outside a cluster, or if the API server does not answer.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if not host or not (_ACCOUNT / "token").exists():
        return []
    try:
        pods, events = _list(host, "pods"), _list(host, "events")
    except (OSError, ValueError):
        return []
    return describe(pods, events, time.time())


def describe(pods: list[Resource], events: list[Resource], now: float) -> list[str]:
    """Describe the pods that have been unready for a while; ``now`` is in seconds of the epoch."""
    lines = []
    for pod in pods:
        meta, status = pod["metadata"], pod.get("status", {})
        conditions = {c["type"]: c for c in status.get("conditions", [])}
        ready = conditions.get("Ready", {})
        of_job = any(owner["kind"] == "Job" for owner in meta.get("ownerReferences", []))
        if ready.get("status") == "True" or status.get("phase") == "Failed" or of_job:
            continue
        since = ready.get("lastTransitionTime") or meta["creationTimestamp"]
        seconds = now - datetime.fromisoformat(since).timestamp()
        if seconds >= _SHORTEST:
            reason = _reason(pod, conditions, events)
            phase = "Pending" if status.get("phase") == "Pending" else "unready"
            lines.append(f"{meta['name']} is {phase} for {seconds:.0f} s: {reason}")
    return lines


def _reason(pod: Resource, conditions: dict[str, Resource], events: list[Resource]) -> str:
    scheduled = conditions.get("PodScheduled", {})
    status = pod.get("status", {})
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    waiting = [
        f"{state['reason']}: {state.get('message', '')}"
        for container in containers
        if (state := container.get("state", {}).get("waiting"))
        and state["reason"] not in ("ContainerCreating", "PodInitializing")
    ]
    warnings = [
        event.get("message", "")
        for event in events
        if event.get("type") == "Warning"
        and event["involvedObject"].get("uid") == pod["metadata"]["uid"]
    ]
    if scheduled.get("status") == "False":
        text = str(scheduled.get("message", "not scheduled"))
    else:
        text = " ".join((waiting or warnings[-1:] or ["its containers start"])[0].split())
    for word, remedy in _REMEDIES.items():
        if word.lower() in text.lower():
            return f"{text.rstrip('.')}; {remedy.replace('POD', pod['metadata']['name'])}"
    return text


def _list(host: str, kind: str) -> list[Resource]:
    """List the resources of the run's namespace.

    Raises:
        OSError: The API server does not answer, or refuses.
        ValueError: It answers something else.
    """
    # Imported here because only a run that waits in a cluster needs them.
    import ssl
    import urllib.request

    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    where = f"[{host}]" if ":" in host else host
    namespace = (_ACCOUNT / "namespace").read_text().strip()
    request = urllib.request.Request(
        f"https://{where}:{port}/api/v1/namespaces/{namespace}/{kind}",
        headers={"Authorization": f"Bearer {(_ACCOUNT / 'token').read_text().strip()}"},
    )
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(request, timeout=10) as answer:
        items: list[Resource] = json.load(answer)["items"]
    return items
