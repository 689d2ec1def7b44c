"""Reference to a problem of prepared data, in place of its tests.

``plumbline:<dataset>/<problem_id>#<digest>`` names a problem and what its verdicts depend on. A
trainer carries it as ``ground_truth``; the tests stay at the reward service.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote

from shared.schemas import Problem

SCHEME = "plumbline:"
_TEXT = re.compile(r"plumbline:([^/#\s]+)/([^/#\s]+)#([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class ProblemReference:
    """Name of a problem; ``digest`` is :func:`problem_digest` of its content."""

    dataset: str
    problem_id: str
    digest: str

    @property
    def text(self) -> str:
        """The reference as text; data set and id are percent-quoted as in a sample's key."""
        dataset, problem_id = quote(self.dataset, safe=""), quote(self.problem_id, safe="")
        return f"{SCHEME}{dataset}/{problem_id}#{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a :attr:`text`.

        Raises:
            ValueError: It is not the text of a reference.
        """
        parts = _TEXT.fullmatch(text)
        if parts is None:
            raise ValueError(
                "not a reference to a problem (plumbline:<dataset>/<problem_id>#<16 hex digits>)"
            )
        try:
            dataset, problem_id = (unquote(part, errors="strict") for part in parts.groups()[:2])
        except UnicodeDecodeError:
            raise ValueError("a reference whose data set or problem is not UTF-8") from None
        return cls(dataset, problem_id, parts[3])


def is_reference(text: str) -> bool:
    """Whether a ground truth is meant as a reference rather than as tests."""
    return text.startswith(SCHEME)


def problem_digest(problem: Problem) -> str:
    """First 16 hex digits of the SHA-256 over what prompt and verdicts depend on."""
    content = [problem.prompt_sha256, problem.ground_truth, problem.extra_info]
    document = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def reference_of(problem: Problem) -> ProblemReference:
    return ProblemReference(problem.dataset, problem.problem_id, problem_digest(problem))
