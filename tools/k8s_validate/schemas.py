"""Schema validation of manifests; unknown fields are errors."""

import importlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.k8s_validate.render import Document, Finding, name_of

# The oldest supported version (sidecars, pod failure policy) and a recent one.
VERSIONS = ("1.31", "1.35")
CUSTOM_GROUPS = ("keda.sh", "monitoring.coreos.com", "ray.io")


def is_custom(document: Document) -> bool:
    return str(document["apiVersion"]).partition("/")[0] in CUSTOM_GROUPS


def builtin(target: str, documents: Iterable[Document]) -> Iterator[Finding]:
    """Validate built-in kinds with kubernetes-validate in strict mode."""
    validator = importlib.import_module("kubernetes_validate")
    for document in documents:
        if is_custom(document):
            continue
        for version in VERSIONS:
            try:
                validator.validate(document, version, strict=True)
            except (validator.ValidationError, validator.SchemaNotFoundError) as error:
                reason = getattr(error, "message", None) or str(error)
                yield Finding(target, name_of(document), f"Kubernetes {version}: {reason}")


def custom(target: str, documents: Iterable[Document], schemas: Path) -> Iterator[Finding]:
    """Validate custom resources with JSON schemas: ``<schemas>/<group>/<kind>_<version>.json``."""
    jsonschema = importlib.import_module("jsonschema")
    for document in filter(is_custom, documents):
        group, _, version = str(document["apiVersion"]).partition("/")
        path = schemas / group / f"{document['kind'].lower()}_{version}.json"
        if not path.is_file():
            yield Finding(target, name_of(document), f"no schema {path.name} of {group}")
            continue
        validator = jsonschema.Draft7Validator(json.loads(path.read_text()))
        for error in validator.iter_errors(document):
            yield Finding(target, name_of(document), f"{error.json_path}: {error.message}")
