"""Pods that the KubeRay operator makes of a RayCluster.

The source is ray-operator/controllers/ray/common/pod.go of github.com/ray-project/kuberay, of which
the versions 1.3 to 1.7 agree in all that is here.
"""

import copy
from collections.abc import Mapping
from typing import Any

from tests.k8s.cluster import Document

PORT = 6379
_SHELL = ["/bin/bash", "-c", "--"]
# Flags that are given a value even where it is true or false.
_WITH_VALUE = ("log-color", "include-dashboard")


def service(cluster: Document) -> str:
    """The name of the Service of the head, which it gets before the head runs."""
    return f"{cluster['metadata']['name']}-head-svc"


def head(cluster: Document) -> Document:
    """The head's pod template."""
    group = cluster["spec"]["headGroupSpec"]
    added = {"head": "true", "dashboard-host": "0.0.0.0"}
    return _pod(cluster, group, added, f"127.0.0.1:{PORT}")


def worker(cluster: Document) -> Document:
    """The pod template of the only group of workers; an init container waits for the head."""
    (group,) = cluster["spec"]["workerGroupSpecs"]
    address = f"{full_name(cluster)}:{PORT}"
    template = _pod(cluster, group, {"address": address}, address)
    (container,) = template["spec"]["containers"]
    (given,) = group["template"]["spec"]["containers"]
    copied = ("image", "imagePullPolicy", "securityContext", "env", "volumeMounts")
    ask = f"ray health-check --address {address}"
    wait = {
        "name": "wait-gcs-ready",
        "command": _SHELL,
        "args": [f"until {ask}; do sleep 5; done"],
        "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}},
    }
    wait |= copy.deepcopy({key: given[key] for key in copied})
    template["spec"]["initContainers"] = [wait]
    container["env"] += [
        {"name": "FQ_RAY_IP", "value": full_name(cluster)},
        {"name": "RAY_IP", "value": service(cluster)},
    ]
    return template


def full_name(cluster: Document) -> str:
    """The head's name with namespace and domain, by which KubeRay calls it."""
    return f"{service(cluster)}.{cluster['metadata']['namespace']}.svc.cluster.local"


def _pod(
    cluster: Document, group: Mapping[str, Any], added: Mapping[str, str], address: str
) -> Document:
    template: Document = copy.deepcopy(group["template"])
    (container,) = template["spec"]["containers"]
    start = _start_command(container["resources"]["limits"], group["rayStartParams"], added)
    assert "command" not in container, "KubeRay would run it before `ray start`"
    container |= {"command": _SHELL, "args": [f"ulimit -n 65536; {start}"]}
    container["env"] += [
        {"name": "RAY_CLUSTER_NAME", "value": cluster["metadata"]["name"]},
        {"name": "RAY_CLUSTER_NAMESPACE", "value": cluster["metadata"]["namespace"]},
        {"name": "KUBERAY_GEN_RAY_START_CMD", "value": start},
        {"name": "RAY_PORT", "value": str(PORT)},
        {"name": "RAY_ADDRESS", "value": address},
        {"name": "RAY_USAGE_STATS_KUBERAY_IN_USE", "value": "1"},
        {"name": "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "value": "1"},
    ]
    return template


def _start_command(
    limits: Mapping[str, str], given: Mapping[str, str], added: Mapping[str, str]
) -> str:
    """``ray start`` with the parameters given, and those added from the resources."""
    parameters = {
        "num-cpus": limits["cpu"],
        "memory": str(int(limits["memory"].removesuffix("Gi")) << 30),
        "metrics-export-port": "8080",
        "dashboard-agent-listen-port": "52365",
        **({"num-gpus": limits["nvidia.com/gpu"]} if "nvidia.com/gpu" in limits else {}),
        **added,
        **given,
        "block": "true",
    }
    flags = (_flag(name, value) for name, value in sorted(parameters.items()))
    return " ".join(["ray start", *filter(None, flags)])


def _flag(name: str, value: str) -> str:
    if value in ("true", "false") and name not in _WITH_VALUE:
        return f"--{name}" if value == "true" else ""
    return f"--{name}={value}"
