"""Every pod meets `restricted`."""

import re
from collections.abc import Callable, Iterator

from tests.k8s.cluster import Cluster, Document, Pod, defects
from tools.k8s_validate.render import K8S


def insecure(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        yield from (f"{pod.name}: {problem}" for problem in _pod(pod))
        for container in pod.containers:
            for problem in _container(container):
                yield f"{pod.name}/{container['name']}: {problem}"
    for account in cluster.of("ServiceAccount"):
        if account.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount/{account['metadata']['name']}: a token"


def _pod(pod: Pod) -> Iterator[str]:
    spec, context = pod.spec, pod.spec.get("securityContext", {})
    if spec.get("automountServiceAccountToken") is not False:
        yield "a token of the API server"
    if spec.get("enableServiceLinks") is not False:
        yield "variables of Services, which could be taken for settings"
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp profile"
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "a namespace of the host"
    users = (context.get("runAsUser"), context.get("runAsGroup"))
    if users != (10001, 10001):
        yield f"runs as {users}"
    if context.get("runAsNonRoot") is not True:
        yield "may run as root"
    for volume in spec.get("volumes", []):
        if "hostPath" in volume:
            yield f"volume {volume['name']} is the host's"
        if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
            yield f"volume {volume['name']} without a limit"


def _container(container: Document) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield "may become more than it is"
    if context.get("readOnlyRootFilesystem") is not True:
        yield "a root file system that can be written"
    capabilities = context.get("capabilities", {})
    if capabilities != {"drop": ["ALL"]}:
        yield f"capabilities {capabilities}"
    resources = container.get("resources", {})
    for kind in ("requests", "limits"):
        if not {"cpu", "memory"} <= resources.get(kind, {}).keys():
            yield f"no {kind}"


def test_every_pod_is_restricted(clusters: dict[str, Cluster]):
    assert defects(clusters, insecure) == {}


def test_the_namespace_enforces_it(clusters: dict[str, Cluster]):
    for name, cluster in clusters.items():
        labels = cluster.one("Namespace", "plumbline")["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted", name


def _judge(c: Cluster) -> dict:
    return c.pod("judge").spec


DAMAGES: list[Callable[[Cluster], object]] = [
    lambda c: _judge(c)["securityContext"].update(runAsUser=0),
    lambda c: _judge(c)["securityContext"].pop("runAsNonRoot"),
    lambda c: _judge(c)["securityContext"].pop("seccompProfile"),
    lambda c: _judge(c).update(automountServiceAccountToken=True),
    lambda c: _judge(c).pop("enableServiceLinks"),
    lambda c: _judge(c).update(hostNetwork=True),
    lambda c: _judge(c)["volumes"].append({"name": "h", "hostPath": {"path": "/"}}),
    lambda c: _judge(c)["volumes"].append({"name": "e", "emptyDir": {}}),
    lambda c: _judge(c)["containers"][0]["securityContext"].update(privileged=True),
    lambda c: _judge(c)["containers"][0]["securityContext"].pop("readOnlyRootFilesystem"),
    lambda c: _judge(c)["containers"][0]["securityContext"].pop("capabilities"),
    lambda c: _judge(c)["containers"][0]["resources"]["limits"].pop("memory"),
    lambda c: c.pod("ray").spec["containers"][0].pop("resources"),
    lambda c: _judge(c)["containers"][0]["securityContext"]["capabilities"].update(add=["KILL"]),
    lambda c: c.one("ServiceAccount", "judge").pop("automountServiceAccountToken"),
]


def test_less_is_found(rendered: Callable[[str], Cluster]):
    missed = []
    for number, damage in enumerate(DAMAGES):
        damaged = rendered("everything")
        damage(damaged)
        if not list(insecure(damaged)):
            missed.append(f"DAMAGES[{number}]")
    assert missed == []


_FIGURE = re.compile(r"^\s+(cpu|memory|nvidia\.com/gpu): |(requests|limits): \{(?!storage)")


def test_every_figure_has_its_reason():
    bare = [
        f"{path.relative_to(K8S)}:{number}: {line.strip()}"
        for path in sorted(K8S.rglob("*.yaml"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _FIGURE.search(line) and "#" not in line and "op:" not in line
    ]
    assert bare == []
