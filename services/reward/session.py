"""Identity of a reward session: what its verdicts depend on beside problem and completion.

Sessions of replicas with the same protocol and the same code are one. A change of either makes
another session, so no answer outlives the rules that it was given by.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue

import services
import shared
from shared.config import Config
from shared.ledger import keys
from shared.versions import COMMIT, versions_of

_SECTIONS = ("judge.", "sandbox.")
# Of ``services`` and ``shared``: the judge, where it is installed, and what a verdict comes from.
_JUDGING = ("judge", "checkers.py", "extraction", "harness", "schemas.py", "statuses.py")
_SOURCES = {".py", ".lua", ".h", ".cpp"}


@dataclass(frozen=True)
class RewardSession:
    """The protocol of a reward service, and the session that it makes."""

    config: Config

    @cached_property
    def protocol(self) -> dict[str, JsonValue]:
        """Leaves of the protocol that verdicts depend on, by path."""
        leaves = self.config.protocol().leaves
        return {path: value for path, value in leaves.items() if path.startswith(_SECTIONS)}

    @cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 of protocol, version and code."""
        # Images name the commit that they were built from; that of the judge is of the same one.
        commit = os.environ.get(COMMIT)
        content = [self.protocol, version(), code_hash(), commit]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def run(self) -> str:
        """The id under which its samples are judged."""
        return f"{keys.REWARDS}{self.fingerprint[:16]}"

    @cached_property
    def document(self) -> str:
        """The config for judges, as JSON."""
        return self.config.for_services().model_dump_json()


def version() -> str:
    """Plumbline's version."""
    return versions_of(["plumbline"]).get("plumbline", "unknown")


def code_hash() -> str:
    """Hex SHA-256 over the source files that verdicts come from, as far as they are installed."""
    digest = hashlib.sha256()
    for package in (services, shared):
        root = Path(package.__path__[0])
        for name in _JUDGING:
            found = root / name
            for file in sorted(found.rglob("*")) if found.is_dir() else [found]:
                if file.suffix in _SOURCES and file.is_file():
                    digest.update(f"{file.relative_to(root)}\n".encode())
                    digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
