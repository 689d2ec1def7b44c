"""Self-contained HTML page of a comparison: page, style, scripts and data in one file."""

from collections.abc import Sequence
from pathlib import Path

from services.aggregator.comparison.contents import ComparisonBounds, ComparisonContents
from services.aggregator.report.page import page_frame
from services.aggregator.report.script_json import compact
from shared.analysis.compare import Comparison
from shared.artifacts import OutputFolder

_API = Path(__file__).parent / "api.js"
_DEFAULT_BOUNDS = ComparisonBounds()


def write_comparison(
    comparisons: Sequence[Comparison],
    folder: OutputFolder,
    name: str,
    bounds: ComparisonBounds = _DEFAULT_BOUNDS,
) -> list[str]:
    """Write runs compared with the first one; the same runs and version produce the same bytes.

    Args:
        comparisons: Of runs that were read from folders.
        folder: Destination folder.
        name: File name in it.
        bounds: Size limits.

    Returns:
        Notes about data that the page omits, one line each.

    Raises:
        OutputError: A run's texts cannot be read, or the page cannot be written.
    """
    before, after = page_frame(_API)
    contents = ComparisonContents(comparisons, bounds)
    with folder.replacing(name) as file:
        file.write(before)
        file.write(compact(contents.document()))
        file.write(after)
    return contents.notes
