"""Tables without lines."""

from collections.abc import Sequence

from rich.table import Table


def plain_table(headings: Sequence[str], left: Sequence[str] | None = None) -> Table:
    """A table without lines between its cells.

    Args:
        headings: Those of the columns.
        left: The columns that are aligned left; None for all.
    """
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        at_left = left is None or heading in left
        table.add_column(heading, justify="left" if at_left else "right", overflow="fold")
    return table
