"""Identity of a reward session: what its verdicts depend on beside problem and completion.

Sessions of replicas with the same protocol, of which the number of the verdict rules is a part, the
same release and the same environment are one. A change of any makes another session, so no answer
outlives what it was judged by.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue

from shared.config import Config
from shared.ledger import keys
from shared.versions import release

_SECTIONS = ("judge.", "sandbox.")


@dataclass(frozen=True)
class RewardSession:
    """The protocol of a reward service, and the session that it makes.

    ``environment``: fingerprint of what the sandboxes' programs run on, as far as it is known.
    """

    config: Config
    environment: str = ""

    @cached_property
    def protocol(self) -> dict[str, JsonValue]:
        """Leaves of the protocol that verdicts depend on, by path."""
        leaves = self.config.protocol().leaves
        return {path: value for path, value in leaves.items() if path.startswith(_SECTIONS)}

    @cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 of protocol, release and environment."""
        content = [self.protocol, release(), self.environment]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def run(self) -> str:
        """The id under which its samples are judged."""
        return f"{keys.REWARDS}{self.fingerprint[:16]}"

    @cached_property
    def document(self) -> str:
        """The config for judges, as JSON."""
        return self.config.for_services().model_dump_json()
