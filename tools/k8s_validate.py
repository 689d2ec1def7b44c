"""Validate the manifests in ``k8s/`` (``python -m tools.k8s_validate``).

Renders every overlay and component, then checks the schemas of built-in and custom resources and
the security policy. Prints one finding per line; the exit code is 1 if there are any.

Requires kubectl and the packages of packaging/k8s.in. Schemas of custom resources are read from the
folder in PLUMBLINE_K8S_SCHEMAS, by default ``shared/k8s-schemas`` next to the checkout.
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from shared.errors import PlumblineError, ServiceError

ROOT = Path(__file__).resolve().parents[1]
K8S = ROOT / "k8s"
SCHEMAS_VARIABLE = "PLUMBLINE_K8S_SCHEMAS"

Document = dict[str, Any]  # a Kubernetes resource, foreign YAML


# Rendering


@dataclass(frozen=True)
class Target:
    """An overlay, with additional components."""

    name: str
    folder: Path
    components: tuple[Path, ...] = ()


def targets() -> list[Target]:
    """Every overlay, one of them with each component that it lacks, and one with several."""
    overlays = [Target(f.name, f) for f in sorted((K8S / "overlays").iterdir()) if f.is_dir()]
    single, multi = (K8S / "overlays" / name for name in ("gpu-single-node", "gpu-multi-node"))
    included = (single / "kustomization.yaml").read_text()
    components = sorted(f for f in (K8S / "components").iterdir() if f.name not in included)
    one_node = K8S / "components" / "one-node"  # again, for the pods of the component
    alone = [Target(f"gpu-single-node+{f.name}", single, (f, one_node)) for f in components]
    together = [K8S / "components" / name for name in ("gvisor", "ingress", "monitoring", "reward")]
    return [*overlays, *alone, Target("everything", multi, tuple(together))]


def render(target: Target) -> list[Document]:
    """Render with ``kubectl kustomize`` without options, like ``kubectl apply -k``.

    Raises:
        ServiceError: kubectl is not installed, or it fails.
    """
    if not target.components:
        return _kustomize(target.folder, target.name)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder).resolve()
        kustomization = {
            "namespace": "plumbline",
            "resources": [os.path.relpath(target.folder, here)],
            "components": [os.path.relpath(component, here) for component in target.components],
        }
        (here / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return _kustomize(here, target.name)


def _kustomize(folder: Path, name: str) -> list[Document]:
    done = _run(["kubectl", "kustomize", str(folder)], "kubectl")
    if done.returncode:
        raise ServiceError(f"{name}: kubectl kustomize failed: {done.stderr.strip()}")
    # libyaml parses several times as fast as the loader in Python.
    return [document for document in yaml.load_all(done.stdout, yaml.CSafeLoader) if document]


def _run(command: list[str], package: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServiceError(f"cannot run {command[0]} ({error}); install {package}") from None


# Schemas; unknown fields are errors

# The oldest supported version (sidecars, pod failure policy) and a recent one.
_VERSIONS = ("1.31", "1.35")
_CUSTOM_GROUPS = ("keda.sh", "monitoring.coreos.com", "ray.io")


def check_schemas(target: str, documents: Iterable[Document], folder: Path | None) -> Iterator[str]:
    """Validate built-in kinds with kubernetes-validate, and custom resources with JSON schemas.

    Args:
        target: Name of the rendering.
        documents: Its resources.
        folder: Schemas as ``<group>/<kind>_<version>.json``; None skips custom resources.
    """
    for document in documents:
        name = f"{document.get('kind')}/{document.get('metadata', {}).get('name')}"
        group, _, version = str(document["apiVersion"]).partition("/")
        if group not in _CUSTOM_GROUPS:
            messages = _builtin(document)
        elif folder:
            messages = _custom(document, folder / group, version)
        else:
            continue
        yield from (f"{target}: {name}: {message}" for message in messages)


def _builtin(document: Document) -> Iterator[str]:
    validator = importlib.import_module("kubernetes_validate")
    for version in _VERSIONS:
        try:
            validator.validate(document, version, strict=True)
        except (validator.ValidationError, validator.SchemaNotFoundError) as error:
            yield f"Kubernetes {version}: {getattr(error, 'message', None) or error}"


def _custom(document: Document, folder: Path, version: str) -> Iterator[str]:
    path = folder / f"{document['kind'].lower()}_{version}.json"
    if not path.is_file():
        yield f"no schema {path.name} of {folder.name}"
        return
    jsonschema = importlib.import_module("jsonschema")
    for error in jsonschema.Draft7Validator(json.loads(path.read_text())).iter_errors(document):
        yield f"{error.json_path}: {error.message}"


# Security policy: Checkov's Kubernetes checks, except those in k8s/policy-exceptions.yaml

EXCEPTIONS = K8S / "policy-exceptions.yaml"


class PolicyException(BaseModel):
    """Exception from a check; the regular expression ``resources`` matches ``Kind.name``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    check: str
    resources: str
    reason: str = Field(min_length=20)


def check_policy(rendered: Mapping[str, Sequence[Document]]) -> list[str]:
    """Return failed checks that no exception covers, and exceptions without a failed check."""
    allowed = [
        PolicyException.model_validate(entry) for entry in yaml.safe_load(EXCEPTIONS.read_text())
    ]
    used: set[PolicyException] = set()
    findings = []
    for target, failed in _failed_checks(rendered):
        kind, _, rest = failed["resource"].partition(".")
        resource = f"{kind}.{rest.rpartition('.')[2]}"
        covering = [
            entry
            for entry in allowed
            if entry.check == failed["check_id"] and re.fullmatch(entry.resources, resource)
        ]
        used.update(covering)
        if not covering:
            findings.append(f"{target}: {resource}: {failed['check_id']} {failed['check_name']}")
    stale = [entry.check for entry in allowed if entry not in used]
    return findings + [f"{EXCEPTIONS.name}: {c}: unused exception; remove it" for c in stale]


def _failed_checks(
    rendered: Mapping[str, Sequence[Document]],
) -> Iterator[tuple[str, dict[str, str]]]:
    program = Path(sys.executable).with_name("checkov")
    options = ["--framework", "kubernetes", "--compact", "--quiet", "--skip-download", "-o", "json"]
    with tempfile.TemporaryDirectory() as folder:
        for target, documents in rendered.items():
            (Path(folder) / f"{target}.yaml").write_text(yaml.safe_dump_all(documents))
        done = _run([str(program), "-d", folder, *options], "the packages of packaging/k8s.in")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise ServiceError(f"checkov wrote no report: {done.stderr.strip()[-300:]}") from None
    for report in answer if isinstance(answer, list) else [answer]:
        if "results" not in report:
            raise ServiceError("checkov checked no resource")
        for failed in report["results"]["failed_checks"]:
            yield Path(failed["file_path"]).stem, failed


# PrometheusRule manifest generated from configs/prometheus/rules.yml

RULES = ROOT / "configs" / "prometheus" / "rules.yml"
RULES_COPY = K8S / "components" / "monitoring" / "rules.yaml"
_HEAD = "# Made of configs/prometheus/rules.yml by `python -m tools.k8s_validate --write-rules`.\n"
# A cluster's Prometheus also scrapes targets of other applications.
_PLUMBLINE_DOWN = 'up{job=~"aggregator|generator|judge|reward|sandbox"} == 0'


def prometheus_rule() -> Document:
    rules: Document = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if rule["expr"] == "up == 0":
                rule["expr"] = _PLUMBLINE_DOWN
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "plumbline", "labels": {"app.kubernetes.io/part-of": "plumbline"}},
        "spec": rules,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.k8s_validate")
    parser.add_argument("--write-rules", action="store_true", help=f"write {RULES_COPY.name}")
    if parser.parse_args().write_rules:
        RULES_COPY.write_text(
            _HEAD + yaml.safe_dump(prometheus_rule(), sort_keys=False, width=1000)
        )
        return 0
    folder = Path(os.environ.get(SCHEMAS_VARIABLE) or ROOT.parent / "shared" / "k8s-schemas")
    if not folder.is_dir():
        print(f"custom resources are not validated: no folder {folder} (set {SCHEMAS_VARIABLE})")
    try:
        rendered = {target.name: render(target) for target in targets()}
        findings = set(check_policy(rendered))
        for target, documents in rendered.items():
            findings.update(check_schemas(target, documents, folder if folder.is_dir() else None))
    except PlumblineError as error:
        print(f"k8s_validate: {error}", file=sys.stderr)
        return error.exit_code
    for finding in sorted(findings):
        print(finding)
    count = sum(len(documents) for documents in rendered.values())
    print(f"{len(rendered)} renderings, {count} documents, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
