"""Validate the manifests in ``k8s/`` (``python -m tools.k8s_validate``).

Prints one finding per line; the exit code is 1 if there are any.

Requires kubectl and the packages of packaging/k8s.in. Schemas of custom resources are read from the
folder in PLUMBLINE_K8S_SCHEMAS, by default ``shared/k8s-schemas`` next to the checkout.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from shared.errors import PlumblineError
from tools.k8s_validate import alert_rules, policy, schemas
from tools.k8s_validate.render import ROOT, Document, Finding, render, targets

SCHEMAS_VARIABLE = "PLUMBLINE_K8S_SCHEMAS"


def schema_folder() -> Path:
    return Path(os.environ.get(SCHEMAS_VARIABLE) or ROOT.parent / "shared" / "k8s-schemas")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.k8s_validate")
    parser.add_argument("--write-rules", action="store_true", help=alert_rules.__doc__)
    if parser.parse_args(arguments).write_rules:
        alert_rules.write()
        return 0
    try:
        rendered = {target.name: render(target) for target in targets()}
        against_policy = policy.check(rendered, policy.exceptions())
        findings = sorted({*_schema_findings(rendered), *against_policy})
    except PlumblineError as error:
        print(f"k8s_validate: {error}", file=sys.stderr)
        return error.exit_code
    for finding in findings:
        print(finding)
    count = sum(len(documents) for documents in rendered.values())
    print(f"{len(rendered)} renderings, {count} documents, {len(findings)} findings")
    return 1 if findings else 0


def _schema_findings(rendered: dict[str, list[Document]]) -> Iterator[Finding]:
    folder = schema_folder()
    if not folder.is_dir():
        print(f"custom resources are not validated: no folder {folder} (set {SCHEMAS_VARIABLE})")
    for target, documents in rendered.items():
        yield from schemas.builtin(target, documents)
        if folder.is_dir():
            yield from schemas.custom(target, documents, folder)


if __name__ == "__main__":
    sys.exit(main())
