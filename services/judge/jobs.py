"""The functions that RQ jobs name."""

from services.judge.process import current
from shared.schemas import SampleId


def judge_sample(run: str, sample: str, completion_sha256: str) -> None:
    """Judge one completion; the verdict goes to the ledger, RQ keeps no result."""
    current().judge(run, SampleId.parse(sample), completion_sha256)
