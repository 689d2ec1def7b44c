"""`plumb compare` and `plumb gate`: finished runs over the same problems, sample by sample."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from services.cli.console import JsonFile, display, plain_table, say, shown, write_json
from services.cli.options import RunFolders, run_folder
from shared.analysis.catalogue import BY_KEY
from shared.analysis.compare import (
    Comparison,
    compare_runs,
    comparison_document,
    dataset_score,
    require_same_protocol,
)
from shared.analysis.gate import Finding, Outcome, evaluate, read_policy
from shared.analysis.paired import PairedDifference
from shared.analysis.runs import ComparedRun, SampleVerdict, read_runs
from shared.errors import ConfigError, FindingsError, UndecidedError
from shared.text import not_run_note

_ACCEPTED = BY_KEY["accepted_at_1"].label
_SIGNIFICANT = 0.05
_ABSENT = "–"
_OUTCOMES = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.UNDECIDED: "yellow"}


def compare(
    runs: RunFolders,
    show_flips: Annotated[
        bool, Option("--show-flips", help="List the samples accepted in only one run.")
    ] = False,
    force: Annotated[
        bool, Option("--force", help="Warn if the protocols differ, and compare anyway.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Compare runs with the first one: differences, confidence intervals, detectable effects."""
    if len(runs) < 2:
        raise ConfigError("one run cannot be compared; give two or more folders")
    first, *others = read_runs(runs)
    comparisons = [compare_runs(first, other) for other in others]
    for comparison in comparisons:
        if not force:
            require_same_protocol(comparison)
        for line in comparison.warnings:
            print(f"plumb: {line}", file=sys.stderr)
    _print_runs([first, *others], comparisons)
    if len(comparisons) > 1:
        _print_overview(comparisons)
    else:
        _print_comparison(comparisons[0])
    for comparison in comparisons:
        _print_unpaired(comparison)
        if show_flips:
            _print_flips(comparison)
    write_json(json_file, asdict(comparison_document(comparisons)))


def gate(
    first: Annotated[
        str, Argument(metavar="A", help="Baseline: folder or name.", callback=run_folder)
    ],
    second: Annotated[
        str, Argument(metavar="B", help="Candidate: folder or name.", callback=run_folder)
    ],
    policy_file: Annotated[Path, Option("--policy", help="YAML, as configs/gate.yaml.")],
    json_file: JsonFile = None,
    sequential: Annotated[
        bool, Option("--sequential", help="Anytime-valid, for --until-decided or repeated looks.")
    ] = False,
) -> None:
    """Check a run against rules; exit code 0: go, 1: no-go, 4: inconclusive."""
    policy = read_policy(policy_file)
    runs = read_runs([first, second])
    comparison = compare_runs(*runs)
    report = evaluate(policy, comparison, sequential=sequential)
    _print_runs(runs, [comparison])
    _print_findings(report.findings)
    write_json(json_file, asdict(report))
    rules = f"{', '.join(report.deciding_rules())} (of {len(report.findings)} rules)"
    if report.outcome is Outcome.FAIL:
        raise FindingsError(f"no-go: {rules}")
    if report.outcome is Outcome.UNDECIDED:
        raise UndecidedError(f"inconclusive: {rules}")
    print(f"go: all {len(report.findings)} rules hold")


# Output


def _print_runs(runs: Sequence[ComparedRun], comparisons: Sequence[Comparison]) -> None:
    """Print the legend of the runs' letters, caveats, and the settings that may differ."""
    for run in runs:
        model = run.record.model
        named = f"{run.name}, model {model}" if model else run.name
        say(f"{run.label}  {run.place} ({named})")
    for label, note in ((run.label, note) for run in runs for note in run.notes):
        say(f"{label}: {note}", "yellow")
    for comparison in comparisons:
        for note in comparison.notes:
            say(note)
        for doubt in comparison.doubts:
            say(f"{doubt}: it may differ", "yellow")
        if comparison.remedy:
            say(comparison.remedy, "yellow")


def _print_comparison(comparison: Comparison) -> None:
    """Print a row for accepted@1 of each data set, and one for its pass ratio."""
    first, second = comparison.first.label, comparison.second.label
    numbers = ("problems", first, second, "difference", "95 % interval", "p", "detectable")
    left = ("data set", "metric")
    table = plain_table([*left, *numbers, "gained/lost"], left)
    for dataset in comparison.datasets:
        accepted, ratio = dataset.accepted_at_1, dataset.pass_ratio_mean
        flips = f"{(dataset.flipped > 0).sum()}/{(dataset.flipped < 0).sum()}"
        name, problems = shown(dataset.dataset), str(accepted.problems)
        table.add_row(name, _ACCEPTED, problems, *_cells(accepted), flips)
        label = "pass ratio, at least" if dataset.pass_ratio_bounds else "pass ratio"
        table.add_row("", label, "", *_cells(ratio), "")
    display("", table)
    for dataset in comparison.datasets:
        if bounds := dataset.pass_ratio_bounds:
            between = f"{_points(bounds.worst.difference)} and {_points(bounds.best.difference)}"
            say(
                f"{dataset.dataset}: cases of {dataset.samples_cut} of {len(dataset)} pairs were "
                "not run (judge.max_timeouts) and count as failed in the pass ratio; the exact "
                f"difference is between {between}",
                "yellow",
            )
    for line in comparison.clustering:
        say(line)


def _print_overview(comparisons: Sequence[Comparison]) -> None:
    """Print accepted@1 of all runs, each against the first."""
    runs = [comparisons[0].first, *(comparison.second for comparison in comparisons)]
    differences = {
        (comparison.second.label, dataset.dataset): dataset.accepted_at_1
        for comparison in comparisons
        for dataset in comparison.datasets
    }
    headings = ["run", _ACCEPTED, "95 % interval", "to A", "95 % interval", "p"]
    table = plain_table(["data set", *headings], ["data set", "run"])
    for name in comparisons[0].first.verdicts:
        for run in runs:
            own = dataset_score(run, name)
            interval = f"{own.ci95[0]:.1%}–{own.ci95[1]:.1%}" if own.ci95 else _ABSENT
            paired = differences.get((run.label, name))
            changes = _cells(paired)[2:5] if paired else ["", "", ""]
            table.add_row(shown(name), run.label, _percent(own.accepted_at_1), interval, *changes)
    display("", table)


def _print_unpaired(comparison: Comparison) -> None:
    """Print the data sets and samples that are not compared."""
    for unshared in comparison.unshared:
        say(f"{unshared.dataset}: only in {unshared.run}, not compared", "yellow")
    first, second = comparison.first.label, comparison.second.label
    for dataset in comparison.datasets:
        unpaired = dataset.left_out
        if unpaired.total:
            changed = f", of changed problems {unpaired.changed}" if unpaired.changed else ""
            say(
                f"{dataset.dataset}: {unpaired.total} samples unpaired (only in {first} "
                f"{unpaired.only_first}, only in {second} {unpaired.only_second}, api_error "
                f"{unpaired.api_error}{changed})",
                "yellow",
            )


def _print_flips(comparison: Comparison) -> None:
    """Print every sample that is accepted in only one run, with both verdicts."""
    labels = [comparison.first.label, comparison.second.label]
    table = plain_table(["data set", "problem", "sample", "", *labels])
    for dataset in comparison.datasets:
        flips = (("gained", "green", dataset.gained), ("lost", "red", dataset.lost))
        for word, style, pairs in flips:
            for pair in pairs:
                sample = (dataset.dataset, pair.problem_id, str(pair.sample_index))
                verdicts = (_verdict(pair.first), _verdict(pair.second))
                table.add_row(*map(shown, sample), Text(word, style), *map(shown, verdicts))
    display("", table if table.row_count else "no sample is accepted in only one run")


def _print_findings(findings: Sequence[Finding]) -> None:
    """Print each rule of a policy, the observed value, and the reason why it passes or fails."""
    table = plain_table(["data set", "rule", "limit", "found", "outcome", "why"])
    for finding in findings:
        cells = (finding.dataset, finding.rule, finding.limit, finding.found)
        outcome = Text(finding.outcome, style=_OUTCOMES[finding.outcome])
        table.add_row(*map(shown, cells), outcome, shown(finding.why))
    display("", table)


def _percent(value: float | None) -> str:
    return _ABSENT if value is None else f"{value:.1%}"


def _points(value: float | None) -> str:
    """A difference of shares in percentage points, with its sign."""
    return _ABSENT if value is None else f"{100 * value:+z.1f}"


def _cells(paired: PairedDifference) -> list[str | Text]:
    """Both shares, their difference with its interval, p and the detectable difference."""
    low, high = paired.ci95 or (None, None)
    interval = _ABSENT if low is None else f"{_points(low)} … {_points(high)}"
    difference = Text(_points(paired.difference))
    if paired.difference and paired.p_value is not None and paired.p_value <= _SIGNIFICANT:
        difference.stylize("green" if paired.difference > 0 else "red")
    p_value = _ABSENT if paired.p_value is None else f"{paired.p_value:.3g}"
    detectable = _ABSENT if paired.detectable is None else f"{100 * paired.detectable:.1f}"
    return [_percent(paired.first), _percent(paired.second), difference, interval, p_value,
            detectable]  # fmt: skip


def _verdict(verdict: SampleVerdict) -> str:
    detail = f" ({verdict.detail})" if verdict.detail else ""
    passed = f"{verdict.cases_passed}/{verdict.cases_total}{not_run_note(verdict.cases_not_run)}"
    return f"{verdict.final_status}{detail} {passed}"
