"""Rendered documents, queried like a cluster."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

COMPONENT = "app.kubernetes.io/component"
Document = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """A template of pods, and the document that has it."""

    owner: Document
    template: Document

    @property
    def name(self) -> str:
        return f"{self.owner['kind']}/{self.owner['metadata']['name']}"

    @property
    def labels(self) -> dict[str, str]:
        return self.template["metadata"].get("labels", {})

    @property
    def component(self) -> str:
        return self.labels.get(COMPONENT, "")

    @property
    def spec(self) -> Document:
        return self.template["spec"]

    @property
    def containers(self) -> list[Document]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def ports(self) -> dict[str, int]:
        ports = (port for c in self.containers for port in c.get("ports", []))
        return {port["name"]: port["containerPort"] for port in ports}

    def matches(self, selector: Mapping[str, Any]) -> bool:
        return selects(selector, self.labels)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """A label selector, as far as these manifests use them."""
    wanted = selector.get("matchLabels", {})
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    for term in selector.get("matchExpressions", []):
        inside = labels.get(term["key"]) in term["values"]
        if inside != (term["operator"] == "In"):
            return False
    return True


def env_of(container: Document) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container.get("env", [])}


@dataclass(frozen=True)
class Cluster:
    documents: list[Document]

    def of(self, *kinds: str) -> list[Document]:
        return [document for document in self.documents if document["kind"] in kinds]

    def one(self, kind: str, name: str) -> Document:
        return next(d for d in self.of(kind) if d["metadata"]["name"] == name)

    def names(self, kind: str) -> set[str]:
        return {document["metadata"]["name"] for document in self.of(kind)}

    @cached_property
    def pods(self) -> list[Pod]:
        return list(self._pods())

    def pod(self, component: str) -> Pod:
        return next(pod for pod in self.pods if pod.component == component)

    def _pods(self) -> Iterator[Pod]:
        for document in self.documents:
            match document["kind"]:
                case "Deployment" | "StatefulSet":
                    yield Pod(document, document["spec"]["template"])
                case "CronJob":
                    yield Pod(document, document["spec"]["jobTemplate"]["spec"]["template"])
                case "RayCluster":
                    yield Pod(document, document["spec"]["headGroupSpec"]["template"])
                    for group in document["spec"]["workerGroupSpecs"]:
                        yield Pod(document, group["template"])


def defects(
    clusters: Mapping[str, Cluster], check: Callable[[Cluster], Iterator[str]]
) -> dict[str, list[str]]:
    """The findings of a check by target, without the targets that have none."""
    findings = {name: list(check(cluster)) for name, cluster in clusters.items()}
    return {name: lines for name, lines in findings.items() if lines}
