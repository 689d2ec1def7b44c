"""Self-contained HTML report of a finished run."""

from services.aggregator.report.page import write_report
from services.aggregator.report.samples import Bounds

__all__ = ["Bounds", "write_report"]
