"""`plumb runs`: runs by data set as a table, for the terminal and for a paper."""

import csv
import datetime
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, NamedTuple

from rich.text import Text
from typer import Argument, Option

from services.cli.console import display, plain_table, printable, say, stdout_console
from shared.analysis import differences
from shared.errors import OutputError
from shared.finished_run import FinishedRun, open_runs
from shared.run_record import RunRecord

if TYPE_CHECKING:
    from shared.analysis.runs import ComparedRun

# Samples whose verdicts are read for intervals: about a second.
_MOST_SAMPLES = 20_000
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


class _Change(NamedTuple):
    """The change of accepted@1 since the run before; shares from -1 to 1.

    Both are over the samples that both runs have. ``ci95`` is the 95 % confidence interval; None if
    their verdicts were not read: then the difference is that of the published shares.
    """

    difference: float
    ci95: list[float] | None


class _Score(NamedTuple):
    """accepted@1 of a data set; ``bounds`` where samples were not judged."""

    share: float
    ci95: list[float] | None
    bounds: list[float] | None
    change: _Change | None

    def lines(self) -> list[str]:
        """The share, its interval, and the difference to the run before, as percentages."""
        between = f" ({_range(self.bounds)} with those not judged)" if self.bounds else ""
        lines = [f"{self.share:.1%}{between}"]
        lines += [f"[{_range(self.ci95)}]"] if self.ci95 else []
        if self.change is not None:
            ends = self.change.ci95
            interval = f" ({100 * ends[0]:+z.1f} … {100 * ends[1]:+z.1f})" if ends else ""
            lines.append(f"{100 * self.change.difference:+z.1f}{interval}")
        return lines

    def style(self) -> str:
        """Green or red where the interval of the difference is on one side of 0."""
        low, high = (self.change and self.change.ci95) or (0.0, 0.0)
        return "green" if low > 0 else "red" if high < 0 else ""


Scores = Mapping[str, _Score]


def runs(
    folder: Annotated[str, Argument(help="Folder that contains the runs' folders.")] = ("outputs"),
    kind: Annotated[
        RunsFormat, Option("--format", help="For a paper: Markdown, LaTeX (booktabs), CSV.")
    ] = RunsFormat.TEXT,
) -> None:
    """List the runs below a folder, the latest first."""
    finished, broken = open_runs(folder, unpublished=True)
    if not finished and not broken:
        raise OutputError(f"no run in {folder}; name the folder in which runs are written")
    ordered = sorted(
        finished, key=lambda run: run.record.finished_at or run.record.started_at or 0, reverse=True
    )
    changed = _changes(ordered)
    listed = [(run, _scores(run, changed)) for run in ordered]
    names = list(dict.fromkeys(name for _, scores in listed for name in scores))
    if kind is RunsFormat.TEXT:
        _print_text(listed, names)
    elif kind is RunsFormat.CSV:
        _write_csv(listed)
    else:
        rows = [["run", "model", *names]]
        for run, scores in listed:
            cells = (" ".join(scores[name].lines()) if name in scores else "" for name in names)
            rows.append([run.name, _model(run.record), *cells])
        print("\n".join(_markdown(rows) if kind is RunsFormat.MARKDOWN else _latex(rows)))
    for line in broken:
        if kind is RunsFormat.TEXT:
            say(line, "yellow")
        else:
            print(printable(line), file=sys.stderr)


def _print_text(listed: Sequence[tuple[FinishedRun, Scores]], names: Sequence[str]) -> None:
    table = plain_table(["run", "finished", *map(printable, names)])
    between = "\n" if stdout_console().is_terminal else "  "  # a row is one line of a file
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
    display(table)


def _markdown(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        cells = (printable(cell).replace("|", r"\|") for cell in row)
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"|{'|'.join(['---'] * 2 + ['---:'] * (len(row) - 2))}|"


def _latex(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table that needs the package booktabs."""
    yield rf"\begin{{tabular}}{{ll{'r' * (len(rows[0]) - 2)}}}"
    yield r"\toprule"
    for number, row in enumerate(rows):
        escaped = ("".join(_LATEX.get(sign, sign) for sign in printable(cell)) for cell in row)
        line = rf"{' & '.join(escaped)} \\"
        yield line.replace("…", r"\dots{}").replace("–", "--")
        if number == 0:
            yield r"\midrule"
    yield r"\bottomrule"
    yield r"\end{tabular}"


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


def _scores(run: FinishedRun, changed: Mapping[tuple[str, str], _Change]) -> dict[str, _Score]:
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


# Change since the run before


def _changes(latest_first: Sequence[FinishedRun]) -> dict[tuple[str, str], _Change]:
    """Find the changes by a run's folder and data set.

    Two runs measured the same if problems, prompts and protocol agree on the data set; model and
    seeds may differ. Runs without artifacts, and those whose sandboxes cannot be trusted, are left
    out. Verdicts are read for the intervals of the latest runs, until ``_MOST_SAMPLES`` were read.
    """
    pairs = differences.changes(
        (
            run,
            differences.dataset_hashes(run.record),
            {name: metrics.get("accepted_at_1") for name, metrics in run.summary.items()},
            True,
        )
        for run in reversed(latest_first)
        if not run.record.distrust
    )
    left = _MOST_SAMPLES

    @cache
    def verdicts_of(url: str, samples: int) -> "ComparedRun | None":
        """The run with its verdicts; None if they are too many, or cannot be read."""
        nonlocal left
        # Imported here because numpy takes long to import, and most folders have one run.
        from shared.analysis.runs import read_runs

        left -= samples
        try:
            return read_runs([url])[0] if left >= 0 else None
        except OutputError:
            return None

    changed = {}
    for run, dataset, earlier, difference in reversed([*pairs]):
        read = [verdicts_of(pair.folder.url, pair.record.samples) for pair in (earlier, run)]
        changed[run.folder.url, dataset] = _paired(dataset, *read) or _Change(difference, None)
    return changed


def _paired(
    dataset: str, first: "ComparedRun | None", second: "ComparedRun | None"
) -> _Change | None:
    if first is None or second is None:
        return None
    if dataset not in first.verdicts or dataset not in second.verdicts:
        return None
    from shared.analysis.compare import DatasetComparison

    paired = DatasetComparison(dataset, first, second).accepted_at_1
    return None if paired.difference is None else _Change(paired.difference, paired.ci95)
