"""References to volumes, Secrets, ConfigMaps, images and service accounts."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from tests.k8s.cluster import Cluster, Document, Pod


@dataclass(frozen=True)
class Existing:
    """Resources that commands have made: keys of Secrets, ConfigMaps, our images (name:tag)."""

    secrets: Mapping[str, Set[str]]
    configmaps: Set[str]
    images: Set[str]


def missing(cluster: Cluster, existing: Existing) -> Iterator[str]:
    """What the pods need and nobody has made."""
    for owner, secret, key in _keys(cluster):
        if key not in existing.secrets.get(secret, ()):
            yield f"{owner}: no key {key} of the Secret {secret}"
    for pod in cluster.pods:
        for volume in pod.spec.get("volumes", []):
            name = volume.get("configMap", {}).get("name")
            if name and name not in cluster.names("ConfigMap") | existing.configmaps:
                yield f"{pod.name}: no ConfigMap {name}"
        for image in {container["image"] for container in pod.containers}:
            ours = image.startswith("plumbline/")
            if ours and image.removeprefix("plumbline/") not in existing.images:
                yield f"{pod.name}: no image {image}"


def _keys(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """Owner, Secret and key of everything that must exist."""
    for pod in cluster.pods:
        for volume in pod.spec.get("volumes", []):
            secret = volume.get("secret", {})
            # Redis mounts all keys. Optional is what the run reports, and what nobody needs.
            if "items" in secret and not (secret.get("optional") and pod.component != "runner"):
                yield from ((pod.name, secret["secretName"], i["key"]) for i in secret["items"])
    for document in cluster.of("TriggerAuthentication"):
        for entry in document["spec"]["secretTargetRef"]:
            yield "TriggerAuthentication", entry["name"], entry["key"]
    for document in cluster.of("Ingress"):
        for entry in document["spec"]["tls"]:
            yield "Ingress", entry["secretName"], "tls.key"


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
    claim = volume.get("persistentVolumeClaim", {}).get("claimName")
    if claim and claim not in cluster.names("PersistentVolumeClaim"):
        yield f"{pod.name}: no PersistentVolumeClaim {claim}"


def accounts(cluster: Cluster) -> Iterator[str]:
    for pod in cluster.pods:
        name = pod.spec.get("serviceAccountName")
        if name not in cluster.names("ServiceAccount"):
            yield f"{pod.name}: no ServiceAccount {name}"
