"""Which evaluation problems a training corpus has in it."""

from services.data.contamination.check import check_contamination
from services.data.contamination.problems import EvalProblem
from services.data.contamination.report import (
    ContaminationReport,
    Hit,
    Limits,
    Overlap,
    ProblemReport,
)

__all__ = [
    "ContaminationReport",
    "EvalProblem",
    "Hit",
    "Limits",
    "Overlap",
    "ProblemReport",
    "check_contamination",
]
