"""What two methods disagree on, for the terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from services.cli.display import printable, stdout_console
from services.runner.comparison import Comparison, Disagreement, Side

_SHOWN = 30
_SHOWN_CASES = 8


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print the disagreements, those on acceptance first, and where all of them are."""
    console = console or stdout_console()
    first, second = comparison.methods
    differing = sorted(comparison.disagreements, key=lambda d: not d.on_acceptance)
    console.print(
        f"\n{first} and {second} agree on {comparison.samples - len(differing)} of "
        f"{comparison.samples} samples",
        highlight=False,
    )
    if differing:
        console.print(_table(comparison, differing[:_SHOWN]))
    if len(differing) > _SHOWN:
        console.print(f"… and {len(differing) - _SHOWN} more", highlight=False)
    console.print(f"all of it in {comparison.file}", highlight=False, soft_wrap=True)


def _table(comparison: Comparison, shown: list[Disagreement]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("sample", *comparison.methods, "cases that differ"):
        table.add_column(heading, overflow="fold")
    for found in shown:
        name = f"{found.dataset} {found.problem_id} #{found.sample_index}"
        table.add_row(
            escape(printable(name)), _side(found.first), _side(found.second), _cases(found)
        )
    return table


def _side(side: Side) -> str:
    detail = f" ({side.detail})" if side.detail else ""
    return escape(printable(f"{side.final_status}{detail} {side.cases_passed}/{side.cases_total}"))


def _cases(found: Disagreement) -> str:
    listed = [f"{i}: {_code(a)}/{_code(b)}" for i, a, b in found.cases[:_SHOWN_CASES]]
    more = len(found.cases) - len(listed)
    return ", ".join(listed) + (f", … {more} more" if more > 0 else "")


def _code(code: int | None) -> str:
    return "–" if code is None else str(code)
