"""What was extracted from a completion, and from where."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Where the code was found, or why there is none."""

    FENCED = "fenced"
    UNLABELLED = "unlabelled"
    UNCLOSED_FENCE = "unclosed_fence"
    BARE_CODE = "bare_code"
    BODY_ONLY = "body_only"
    PROSE_HEURISTIC = "prose_heuristic"
    NO_CODE_BLOCK = "no_code_block"
    EMPTY = "empty"


class ExtractionPolicy(StrEnum):
    """Which of several blocks is the answer; ``shared.extraction.choice`` has the rules."""

    LAST = "last"
    FIRST = "first"
    SUBSTANCE = "substance"


@dataclass(frozen=True, slots=True)
class Extraction:
    code: str
    reason: Reason

    @property
    def found(self) -> bool:
        return self.reason not in (Reason.NO_CODE_BLOCK, Reason.EMPTY)
