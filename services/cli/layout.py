"""Tables without lines, and bars with intervals."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

_LONGEST_BAR, _SHORTEST_BAR = 50, 10


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


@dataclass(frozen=True)
class Bars:
    """The characters of bars, and the columns that one has.

    Attributes:
        width: Columns of a bar.
        plain: ASCII only.
    """

    width: int
    plain: bool

    def share(self, value: float, interval: Sequence[float]) -> str:
        """A share from 0 to 1: solid up to its interval, dark to the value, light above."""
        low, middle, high = (round(self.width * each) for each in (interval[0], value, interval[1]))
        solid, dark, light, rest = "#=-." if self.plain else "█▓░·"
        return (solid * low + dark * (middle - low) + light * (high - middle)).ljust(
            self.width, rest
        )

    def difference(self, value: float, interval: Sequence[float], most: float) -> str:
        """A difference with its interval, on a line from -most to most whose middle is 0."""
        line, zero, dot, left, right = "-|o[]" if self.plain else "─┼●├┤"
        places = self.width - 1

        def place(each: float) -> int:
            return round(places * min(1.0, max(0.0, (each / most + 1) / 2)))

        low, middle, high = (place(each) for each in (interval[0], value, interval[1]))
        cells = [" "] * self.width
        cells[low : high + 1] = line * (high + 1 - low)
        cells[low], cells[high] = left, right
        cells[place(0.0)] = zero if low <= place(0.0) <= high else "|" if self.plain else "│"
        cells[middle] = dot
        return "".join(cells)


def bars(console: Console, beside: int, *, always: bool = False) -> Bars | None:
    """The bars that the terminal can draw; None where there is no room, or no terminal.

    Args:
        console: The terminal.
        beside: Columns that the rest of a line takes.
        always: Draw in files, too.
    """
    if not (console.is_terminal or always):
        return None
    width = min(_LONGEST_BAR, console.width - beside)
    return None if width < _SHORTEST_BAR else Bars(width, plain=_plain(console))


def _plain(console: Console) -> bool:
    """Whether a bar may only have ASCII characters."""
    # https://no-color.org asks for no colour. Whoever sets it often has a screen reader or a log.
    simple = not console.is_terminal or console.is_dumb_terminal or "NO_COLOR" in os.environ
    return simple or not console.encoding.lower().startswith("utf")
