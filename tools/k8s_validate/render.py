"""Kustomize rendering of the overlays and components in ``k8s/``."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shared.errors import ServiceError

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"

Document = dict[str, Any]  # a Kubernetes resource, foreign YAML


@dataclass(frozen=True, order=True)
class Finding:
    """A defect of a rendered resource."""

    target: str
    resource: str
    message: str

    def __str__(self) -> str:
        return f"{self.target}: {self.resource}: {self.message}"


def name_of(document: Document) -> str:
    return f"{document.get('kind')}/{document.get('metadata', {}).get('name')}"


@dataclass(frozen=True)
class Target:
    """An overlay, with additional components."""

    name: str
    folder: Path
    components: tuple[Path, ...] = ()


def overlays() -> list[Target]:
    return [Target(f.name, f) for f in sorted((K8S / "overlays").iterdir()) if f.is_dir()]


def targets() -> list[Target]:
    """Every overlay, one of them with each component that it lacks, and one with several."""
    single, multi = (K8S / "overlays" / name for name in ("gpu-single-node", "gpu-multi-node"))
    included = (single / "kustomization.yaml").read_text()
    components = sorted(f for f in (K8S / "components").iterdir() if f.name not in included)
    one_node = K8S / "components" / "one-node"  # again, for the pods of the component
    alone = [Target(f"gpu-single-node+{f.name}", single, (f, one_node)) for f in components]
    together = [K8S / "components" / name for name in ("gvisor", "ingress", "monitoring", "reward")]
    return [*overlays(), *alone, Target("everything", multi, tuple(together))]


def render(target: Target) -> list[Document]:
    """Render with ``kubectl kustomize`` without options, like ``kubectl apply -k``.

    Raises:
        ServiceError: kubectl is not installed, or it fails.
    """
    if not target.components:
        return _documents(_kustomize(target.folder, target.name))
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder).resolve()
        kustomization = {
            "namespace": "plumbline",
            "resources": _relative([target.folder], here),
            "components": _relative(target.components, here),
        }
        (here / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return _documents(_kustomize(here, target.name))


def _relative(folders: Sequence[Path], here: Path) -> list[str]:
    return [os.path.relpath(folder, here) for folder in folders]


def _kustomize(folder: Path, name: str) -> str:
    command = ["kubectl", "kustomize", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServiceError(f"cannot run kubectl ({error}); install it to render k8s/") from None
    if done.returncode:
        raise ServiceError(f"{name}: kubectl kustomize failed: {done.stderr.strip()}")
    return done.stdout


def _documents(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]
