"""References to volumes, Secrets, ConfigMaps and service accounts."""

from collections.abc import Iterator

import yaml

from tests.k8s.cluster import Cluster, Document, Pod
from tools.k8s_validate.render import K8S


def secrets() -> dict[str, Document]:
    """By name; keys that only a component needs are in an entry of their own."""
    found: dict[str, Document] = {}
    for entry in yaml.safe_load((K8S / "secrets.yaml").read_text()):
        known = found.setdefault(entry["name"], entry | {"keys": []})
        known["keys"] += entry["keys"]
    return found


def volumes(cluster: Cluster) -> Iterator[str]:
    """Volumes of what is not there, mounts without a volume, volumes without a mount."""
    for pod in cluster.pods:
        claimed = {t["metadata"]["name"] for t in pod.owner["spec"].get("volumeClaimTemplates", [])}
        names = {volume["name"] for volume in pod.spec.get("volumes", [])} | claimed
        mounted = {m["name"] for c in pod.containers for m in c.get("volumeMounts", [])}
        if names != mounted:
            yield f"{pod.name}: volumes {sorted(names)}, mounted {sorted(mounted)}"
        for volume in pod.spec.get("volumes", []):
            yield from _volume(cluster, pod, volume)


def _volume(cluster: Cluster, pod: Pod, volume: Document) -> Iterator[str]:
    if "configMap" in volume and volume["configMap"]["name"] not in cluster.names("ConfigMap"):
        yield f"{pod.name}: no ConfigMap {volume['configMap']['name']}"
    claim = volume.get("persistentVolumeClaim", {}).get("claimName")
    if claim and claim not in cluster.names("PersistentVolumeClaim"):
        yield f"{pod.name}: no PersistentVolumeClaim {claim}"
    if "secret" in volume:
        known = secrets().get(volume["secret"]["secretName"])
        keys = {item["key"] for item in volume["secret"].get("items", [])}
        if known is None or not keys or not keys <= set(known["keys"]):
            yield f"{pod.name}: secrets.yaml has no {volume['secret']['secretName']} with {keys}"
        elif known.get("optional", False) != volume["secret"].get("optional", False):
            yield f"{pod.name}: {known['name']} is optional in one place only"


def other_secrets(cluster: Cluster) -> Iterator[str]:
    known = secrets()
    for document in cluster.of("TriggerAuthentication"):
        for entry in document["spec"]["secretTargetRef"]:
            if entry["key"] not in known.get(entry["name"], {}).get("keys", []):
                yield f"secrets.yaml has no {entry['name']} with {entry['key']}"
    for document in cluster.of("Ingress"):
        for entry in document["spec"]["tls"]:
            if entry["secretName"] not in known:
                yield f"secrets.yaml has no {entry['secretName']}"
    for pod in cluster.pods:
        for container in pod.containers:
            if "envFrom" in container or any("valueFrom" in e for e in container.get("env", [])):
                yield f"{pod.name}: values from elsewhere, which this test does not follow"


def accounts(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        name = pod.spec.get("serviceAccountName")
        if name not in cluster.names("ServiceAccount"):
            yield f"{pod.name}: no ServiceAccount {name}"
