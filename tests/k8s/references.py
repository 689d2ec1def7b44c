"""References to volumes and service accounts."""

from collections.abc import Iterator

from tests.k8s.cluster import Cluster, Document, Pod


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
