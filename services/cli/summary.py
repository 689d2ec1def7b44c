"""The table at the end of a run."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

_ROWS = (
    ("problems", "total_problems", "{:d}"),
    ("accepted@1", "accepted_at_1", "{:.1%}"),
    ("  95 % interval", "accepted_at_1_ci95", "{0[0]:.0%}–{0[1]:.0%}"),
    ("pass ratio, mean", "pass_ratio_mean", "{:.3f}"),
    ("executed", "exec_success_rate", "{:.1%}"),
    ("wrong answer", "wrong_answer_rate", "{:.1%}"),
    ("runtime error", "runtime_error_rate", "{:.1%}"),
    ("time-out", "timeout_rate", "{:.1%}"),
    ("syntax error", "syntax_error_rate", "{:.1%}"),
    ("empty output", "empty_output_rate", "{:.1%}"),
    ("not judged", "api_errors", "{:d}"),
    ("tokens per problem", "avg_total_gen_tokens", "{:.0f}"),
    ("judge time per problem", "avg_total_judge_time", "{:.2f} s"),
    ("tokens per solved", "cost_per_solved_tokens", "{:.0f}"),
)


def print_summary(
    console: Console, summary: Mapping[str, Mapping[str, Any]], run: Mapping[str, Any]
) -> None:
    """Print the main metrics, a column per data set, and where the artifacts are."""
    table = Table(box=None, pad_edge=False)
    table.add_column(str(run["name"]), no_wrap=True, style="bold")
    for dataset in summary:
        table.add_column(dataset, justify="right", overflow="fold")
    for heading, name, form in _ROWS:
        table.add_row(heading, *(_cell(metrics.get(name), form) for metrics in summary.values()))
    console.print()
    console.print(table)
    console.print(
        f"\n{run['samples_judged']} of {run['samples']} samples judged "
        f"in {run.get('active_seconds', 0.0):.1f} s; artifacts in {run['output']}",
        highlight=False,
        soft_wrap=True,
    )


def _cell(value: object, form: str) -> str:
    return "–" if value is None else form.format(value)
