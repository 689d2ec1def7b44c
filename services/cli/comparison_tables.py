"""Terminal tables of comparisons and gate findings."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.cli.console import plain_table, say, shown
from shared.analysis.catalogue import BY_KEY
from shared.analysis.compare import Comparison, DatasetComparison, Pair, dataset_score
from shared.analysis.gate import Finding, Outcome
from shared.analysis.paired import PairedDifference
from shared.analysis.runs import ComparedRun, SampleVerdict
from shared.text import not_run_note

_ACCEPTED = BY_KEY["accepted_at_1"].label

_SIGNIFICANT = 0.05
_ABSENT = "–"
_OUTCOMES = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.UNDECIDED: "yellow"}


def print_runs(console: Console, runs: Sequence[ComparedRun]) -> None:
    """Print the legend of the runs' letters, and caveats about their numbers."""
    for run in runs:
        model = run.record.model
        named = f"{run.name}, model {model}" if model else run.name
        say(console, f"{run.label}  {run.place} ({named})")
    for label, note in ((run.label, note) for run in runs for note in run.notes):
        say(console, f"{label}: {note}", "yellow")


def print_notes(console: Console, comparison: Comparison) -> None:
    """Print the settings that a comparison may vary (model, seed, engine), and what is unknown.

    Then how to make runs comparable that were judged otherwise.
    """
    for note in comparison.notes:
        say(console, note)
    for doubt in comparison.doubts:
        say(console, f"{doubt}: it may differ", "yellow")
    if comparison.remedy:
        say(console, comparison.remedy, "yellow")


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print the differences of two runs as a table."""
    console.print()
    console.print(_comparison_table(comparison))
    for dataset in comparison.datasets:
        _print_cut(console, dataset)
    for line in comparison.clustering:
        say(console, line)


def _comparison_table(comparison: Comparison) -> Table:
    """A row for accepted@1 of a data set, and one for its pass ratio."""
    first, second = comparison.first.label, comparison.second.label
    numbers = ("problems", first, second, "difference", "95 % interval", "p", "detectable")
    left = ("data set", "metric")
    table = plain_table([*left, *numbers, "gained/lost"], left)
    for dataset in comparison.datasets:
        accepted, ratio = dataset.accepted_at_1, dataset.pass_ratio_mean
        name, problems = shown(dataset.dataset), str(accepted.problems)
        table.add_row(name, _ACCEPTED, problems, *_cells(accepted), _flips(dataset))
        table.add_row("", _pass_ratio_name(dataset), "", *_cells(ratio), "")
    return table


def _flips(dataset: DatasetComparison) -> str:
    return f"{len(dataset.gained)}/{len(dataset.lost)}"


def _pass_ratio_name(dataset: DatasetComparison) -> str:
    return "pass ratio, at least" if dataset.pass_ratio_bounds else "pass ratio"


def _print_cut(console: Console, dataset: DatasetComparison) -> None:
    if bounds := dataset.pass_ratio_bounds:
        between = f"{points(bounds.worst.difference)} and {points(bounds.best.difference)}"
        say(
            console,
            f"{dataset.dataset}: cases of {dataset.cut} of "
            f"{len(dataset)} pairs were not run (judge.max_timeouts) "
            "and count as failed in the pass ratio; the exact "
            f"difference is between {between}",
            "yellow",
        )


def print_unpaired(console: Console, comparison: Comparison) -> None:
    """Print the data sets and samples that are not compared."""
    for unshared in comparison.unshared:
        say(console, f"{unshared.dataset}: only in {unshared.run}, not compared", "yellow")
    for dataset in comparison.datasets:
        _print_unpaired(console, comparison, dataset)


def print_flips(console: Console, comparison: Comparison) -> None:
    """Print every sample that is accepted in only one run, with both verdicts."""
    labels = [comparison.first.label, comparison.second.label]
    table = plain_table(["data set", "problem", "sample", "", *labels])
    for dataset in comparison.datasets:
        for word, pairs in (("gained", dataset.gained), ("lost", dataset.lost)):
            for pair in pairs:
                table.add_row(shown(dataset.dataset), *_flip(pair, word))
    console.print()
    if table.row_count:
        console.print(table)
    else:
        console.print("no sample is accepted in only one run")


def print_overview(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Print accepted@1 of all runs, each against the first."""
    runs = [comparisons[0].first, *(comparison.second for comparison in comparisons)]
    differences = {
        (comparison.second.label, dataset.dataset): dataset.accepted_at_1
        for comparison in comparisons
        for dataset in comparison.datasets
    }
    headings = ["run", _ACCEPTED, "95 % interval", "to A", "95 % interval", "p"]
    names = list(comparisons[0].first.verdicts)
    table = plain_table(["data set", *headings], ["data set", "run"])
    for name in names:
        for run in runs:
            row = _overview_row(run, name, differences.get((run.label, name)))
            table.add_row(shown(name), *row)
    console.print()
    console.print(table)


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print each rule of a policy, the observed value, and the reason why it passes or fails."""
    table = plain_table(["data set", "rule", "limit", "found", "outcome", "why"])
    for finding in findings:
        cells = (finding.dataset, finding.rule, finding.limit, finding.found)
        outcome = Text(finding.outcome, style=_OUTCOMES[finding.outcome])
        table.add_row(*(shown(cell) for cell in cells), outcome, shown(finding.why))
    console.print()
    console.print(table)


def percent(value: float | None) -> str:
    return _ABSENT if value is None else f"{value:.1%}"


def points(value: float | None) -> str:
    """A difference of shares in percentage points, with its sign."""
    return _ABSENT if value is None else f"{100 * value:+.1f}"


def interval_points(interval: Sequence[float] | None) -> str:
    return _ABSENT if interval is None else f"{points(interval[0])} … {points(interval[1])}"


def _cells(paired: PairedDifference) -> list[str | Text]:
    difference = Text(points(paired.difference), style=_style(paired))
    p_value = _ABSENT if paired.p_value is None else f"{paired.p_value:.3g}"
    detectable = _ABSENT if paired.detectable is None else f"{100 * paired.detectable:.1f}"
    return [percent(paired.first), percent(paired.second), difference, interval_points(paired.ci95),
            p_value, detectable]  # fmt: skip


def _style(paired: PairedDifference) -> str:
    """Green or red if the difference is significant."""
    if not paired.difference or paired.p_value is None or paired.p_value > _SIGNIFICANT:
        return ""
    return "green" if paired.difference > 0 else "red"


def _overview_row(
    run: ComparedRun, dataset: str, paired: PairedDifference | None
) -> list[str | Text]:
    own = dataset_score(run, dataset)
    interval = f"{own.ci95[0]:.1%}–{own.ci95[1]:.1%}" if own.ci95 else _ABSENT
    row: list[str | Text] = [run.label, percent(own.accepted_at_1), interval]
    if paired is None:
        return [*row, "", "", ""]
    _, _, difference, its_interval, p_value, _ = _cells(paired)
    return [*row, difference, its_interval, p_value]


def _print_unpaired(console: Console, comparison: Comparison, dataset: DatasetComparison) -> None:
    unpaired = dataset.unpaired
    if unpaired.total:
        changed = f", of changed problems {unpaired.changed}" if unpaired.changed else ""
        say(
            console,
            f"{dataset.dataset}: {unpaired.total} samples unpaired "
            f"(only in {comparison.first.label} {unpaired.only_first}, only in "
            f"{comparison.second.label} {unpaired.only_second}, api_error "
            f"{unpaired.api_error}{changed})",
            "yellow",
        )


def _flip(pair: Pair, word: str) -> list[Text]:
    return [
        shown(pair.problem_id),
        shown(str(pair.sample_index)),
        Text(word, style="green" if word == "gained" else "red"),
        shown(_verdict(pair.first)),
        shown(_verdict(pair.second)),
    ]


def _verdict(verdict: SampleVerdict) -> str:
    detail = f" ({verdict.detail})" if verdict.detail else ""
    passed = f"{verdict.cases_passed}/{verdict.cases_total}{not_run_note(verdict.cases_not_run)}"
    return f"{verdict.final_status}{detail} {passed}"
