"""What a run tells whoever watches it."""

from typing import Protocol

from shared.plan import RunPlan
from shared.schemas import SampleId
from shared.statuses import FinalStatus


class Progress(Protocol):
    """Receives every step of a run; a sample judged anew is told again."""

    def planned(self, plan: RunPlan) -> None: ...

    def generated(self, sample: SampleId) -> None: ...

    def judged(self, sample: SampleId, status: FinalStatus) -> None: ...

    def note(self, text: str) -> None: ...
