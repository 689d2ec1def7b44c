"""`plumb runs`: runs by data set as a table, for the terminal and for a paper."""

import csv
import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from services.cli.console import plain_table, printable, stdout_console
from services.cli.trend import Change, changes
from shared.errors import OutputError
from shared.finished_run import FinishedRun, open_runs
from shared.run_record import RunRecord

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_CSV = (
    *("run", "folder", "finished", "model", "temperature", "n", "samples", "dataset"),
    *("accepted_at_1", "low", "high", "difference", "difference_low", "difference_high"),
)


class RunsFormat(StrEnum):
    """Format of the table of runs."""

    TEXT = "text"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class _Score:
    """accepted@1 of a data set; ``bounds`` where samples were not judged."""

    share: float
    ci95: list[float] | None
    bounds: list[float] | None
    change: Change | None

    def lines(self) -> list[str]:
        """The share, its interval, and the difference to the run before, as percentages."""
        between = f" ({_range(self.bounds)} with those not judged)" if self.bounds else ""
        lines = [f"{self.share:.1%}{between}"]
        lines += [f"[{_range(self.ci95)}]"] if self.ci95 else []
        if self.change is not None:
            ends = self.change.ci95
            interval = f" ({100 * ends[0]:+.1f} … {100 * ends[1]:+.1f})" if ends else ""
            lines.append(f"{100 * self.change.difference:+.1f}{interval}")
        return lines

    def style(self) -> str:
        """Green or red where the interval of the difference is on one side of 0."""
        low, high = (self.change and self.change.ci95) or (0.0, 0.0)
        return "green" if low > 0 else "red" if high < 0 else ""


Scores = Mapping[str, _Score]


def runs(
    folder: Annotated[str, typer.Argument(help="Folder that contains the runs' folders.")] = (
        "outputs"
    ),
    kind: Annotated[
        RunsFormat, typer.Option("--format", help="For a paper: Markdown, LaTeX (booktabs), CSV.")
    ] = RunsFormat.TEXT,
) -> None:
    """List the runs below a folder, the latest first."""
    found, broken = open_runs(folder, unpublished=True)
    if not found and not broken:
        raise OutputError(f"no run in {folder}; name the folder in which runs are written")
    ordered = sorted(found, key=_latest, reverse=True)
    changed = changes(ordered)
    listed = [(run, _scores(run, changed)) for run in ordered]
    if kind is RunsFormat.TEXT:
        _print_text(listed)
    elif kind is RunsFormat.CSV:
        _write_csv(listed)
    else:
        print("\n".join(_markdown(listed) if kind is RunsFormat.MARKDOWN else _latex(listed)))
    console = stdout_console() if kind is RunsFormat.TEXT else None
    for line in broken:
        if console is not None:
            console.print(Text(printable(line), style="yellow"))
        else:
            print(printable(line), file=sys.stderr)


def _print_text(listed: Sequence[tuple[FinishedRun, Scores]]) -> None:
    console = stdout_console()
    names = _datasets(listed)
    table = plain_table(["run", "finished", *map(printable, names)])
    between = "\n" if console.is_terminal else "  "  # a row is one line of a file
    for run, scores in listed:
        record = run.record
        style = "" if record.complete and not record.distrust else "yellow"
        facts = [run.name, run.folder.shown, _model(record)]
        cells = [
            Text(between.join(map(printable, facts)), style),
            Text(between.join((_when(record), _samples(record))), style),
        ]
        for name in names:
            score = scores.get(name)
            *share, last = score.lines() if score else [""]
            change = Text(last, score.style() if score and score.change else style)
            cells.append(Text(between).join([*(Text(line, style) for line in share), change]))
        table.add_row(*cells)
    console.print(table)


def _markdown(listed: Sequence[tuple[FinishedRun, Scores]]) -> Iterator[str]:
    names = _datasets(listed)
    yield _row("run", "model", *names)
    yield f"|{'|'.join(['---'] * 2 + ['---:'] * len(names))}|"
    for run, scores in listed:
        cells = (" ".join(scores[name].lines()) if name in scores else "" for name in names)
        yield _row(run.name, _model(run.record), *cells)


def _row(*cells: str) -> str:
    return f"| {' | '.join(printable(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _latex(listed: Sequence[tuple[FinishedRun, Scores]]) -> Iterator[str]:
    """Lines of a table that needs the package booktabs."""
    names = _datasets(listed)
    yield rf"\begin{{tabular}}{{ll{'r' * len(names)}}}"
    yield r"\toprule"
    yield _latex_row("run", "model", *names)
    yield r"\midrule"
    for run, scores in listed:
        cells = (" ".join(scores[name].lines()) if name in scores else "" for name in names)
        yield _latex_row(run.name, _model(run.record), *cells)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _latex_row(*cells: str) -> str:
    escaped = ("".join(_LATEX.get(sign, sign) for sign in printable(cell)) for cell in cells)
    return rf"{' & '.join(escaped)} \\".replace("…", r"\dots{}").replace("–", "--")


def _write_csv(listed: Sequence[tuple[FinishedRun, Scores]]) -> None:
    """Write a line per run and data set; shares are from 0 to 1."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_CSV)
    for run, scores in listed:
        record, rollout = run.record, run.record.config.actor_rollout_ref.rollout
        facts = (run.name, run.folder.shown, _when(record), record.model or "",
                 rollout.temperature, rollout.n, record.samples_judged)  # fmt: skip
        for name, score in scores.items():
            ends = (score.change and score.change.ci95) or ("", "")
            difference = "" if score.change is None else score.change.difference
            writer.writerow(
                [*facts, name, score.share, *(score.ci95 or ("", "")), difference, *ends]
            )


def _datasets(listed: Sequence[tuple[FinishedRun, Scores]]) -> list[str]:
    return list(dict.fromkeys(name for _, scores in listed for name in scores))


def _scores(run: FinishedRun, changed: Mapping[tuple[str, str], Change]) -> dict[str, _Score]:
    scores: dict[str, _Score] = {}
    for name, metrics in run.summary.items():
        share, ends = metrics.get("accepted_at_1"), metrics.get("accepted_at_1_ci95")
        bounds = metrics.get("accepted_at_1_bounds") if metrics.get("api_errors") else None
        if isinstance(share, int | float):
            scores[name] = _Score(
                share,
                ends if isinstance(ends, list) else None,
                bounds if isinstance(bounds, list) else None,
                changed.get((run.folder.url, name)),
            )
    return scores


def _range(ends: Sequence[float]) -> str:
    return f"{100 * ends[0]:.1f}–{100 * ends[1]:.1f}"


def _latest(run: FinishedRun) -> float:
    return run.record.finished_at or run.record.started_at or 0.0


def _model(record: RunRecord) -> str:
    """The model, with what tells two runs of it apart where it is not the default."""
    rollout, method = record.config.actor_rollout_ref.rollout, record.config.judge.method
    parts = [record.model or ""]
    parts += [f"temperature {rollout.temperature:g}"] if rollout.temperature else []
    parts += [f"n {rollout.n}"] if rollout.n > 1 else []
    parts += [] if method == "batch" else [f"judged by {method}"]
    return ", ".join(filter(None, parts))


def _when(record: RunRecord) -> str:
    if not record.state.published and record.finished_at is None:
        return "unfinished"
    when = datetime.datetime.fromtimestamp(record.finished_at or 0.0, datetime.UTC)
    return f"{when:%Y-%m-%d %H:%M}"


def _samples(record: RunRecord) -> str:
    judged = f"{record.samples_judged}/{record.samples}"
    if not record.state.published and record.finished_at is None:  # not counted yet
        judged = f"{record.samples}"
    parts = [judged]
    parts += [f"first {limit}"] if (limit := record.config.data.limit) else []
    parts += ["incomplete"] if record.samples_unjudged else []
    parts += ["untrusted"] if record.distrust else []
    return " ".join(parts)
