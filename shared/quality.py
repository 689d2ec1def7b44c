"""What the audit of a problem's tests can find."""

from enum import StrEnum


class QualityFinding(StrEnum):
    """A word of the column ``quality``, which says ``ok`` where there is none."""

    DUPLICATE_TESTS = "duplicate_tests"
    """The same test stands there twice."""
    CONTRADICTING_TESTS = "contradicting_tests"
    """Two tests have the same input and ask for different outputs."""
    LARGE_OUTPUT = "large_output"
    """An expected output above 128 KiB, which SandboxFusion cuts or blocks on."""
    REJECTED_SOLUTION = "rejected_solution"
    """The judge does not accept a reference solution."""


OK = "ok"


def quality_text(findings: set[QualityFinding]) -> str:
    """The column's text: ``ok``, or the findings in the order above with commas between."""
    return ",".join(finding for finding in QualityFinding if finding in findings) or OK


def quality_findings(text: str) -> set[QualityFinding]:
    """What a column's text says; words that are no finding are not ours and do not count."""
    return {finding for finding in QualityFinding if finding in text.split(",")}
