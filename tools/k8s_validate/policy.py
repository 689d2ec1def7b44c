"""Security policy: Checkov's Kubernetes checks, except those in k8s/policy-exceptions.yaml."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

from shared.errors import ServiceError
from tools.k8s_validate.render import K8S, Document, Finding

EXCEPTIONS = K8S / "policy-exceptions.yaml"


class PolicyException(BaseModel):
    """Exception from a check; the regular expression ``resources`` matches ``Kind.name``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    check: str
    resources: str
    reason: str = Field(min_length=20)

    def covers(self, check: str, resource: str) -> bool:
        return self.check == check and re.fullmatch(self.resources, resource) is not None


class _Failed(BaseModel):
    check_id: str
    check_name: str
    resource: str

    @property
    def short(self) -> str:
        kind, _, rest = self.resource.partition(".")
        return f"{kind}.{rest.rpartition('.')[2]}"


def exceptions(path: Path = EXCEPTIONS) -> list[PolicyException]:
    return [PolicyException.model_validate(entry) for entry in yaml.safe_load(path.read_text())]


def check(rendered: dict[str, list[Document]], allowed: Sequence[PolicyException]) -> list[Finding]:
    """Return failed checks that no exception covers, and exceptions without a failed check."""
    used: set[PolicyException] = set()
    findings = []
    for target, failed in _failures(rendered):
        covering = [entry for entry in allowed if entry.covers(failed.check_id, failed.short)]
        used.update(covering)
        if not covering:
            message = f"{failed.check_id} {failed.check_name}"
            findings.append(Finding(target, failed.short, message))
    stale = [entry for entry in allowed if entry not in used]
    unneeded = "unused exception; remove it"
    return findings + [Finding(EXCEPTIONS.name, entry.check, unneeded) for entry in stale]


def _failures(rendered: dict[str, list[Document]]) -> Iterator[tuple[str, _Failed]]:
    with tempfile.TemporaryDirectory() as folder:
        for target, documents in rendered.items():
            (Path(folder) / f"{target}.yaml").write_text(yaml.safe_dump_all(documents))
        for report in _reports(folder):
            for entry in report["results"]["failed_checks"]:
                target = Path(entry["file_path"]).stem
                yield target, _Failed.model_validate(entry)


def _reports(folder: str) -> list[dict[str, dict[str, list[dict[str, str]]]]]:
    program = Path(sys.executable).with_name("checkov")
    options = ["--framework", "kubernetes", "--compact", "--quiet", "--skip-download", "-o", "json"]
    done = subprocess.run(
        [program, "-d", folder, *options], capture_output=True, text=True, check=False
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise ServiceError(f"checkov wrote no report: {done.stderr.strip()[-300:]}") from None
    reports = answer if isinstance(answer, list) else [answer]
    if not all("results" in report for report in reports):
        raise ServiceError("checkov checked no resource")
    return reports
