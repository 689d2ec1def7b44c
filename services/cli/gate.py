"""`plumb gate`: release gate that checks a candidate run against a baseline run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from services.cli.compare import JsonFile, write_json
from services.cli.options import run_folder
from shared.errors import FindingsError, UndecidedError


def gate(
    first: Annotated[
        str, typer.Argument(metavar="A", help="Baseline: folder or name.", callback=run_folder)
    ],
    second: Annotated[
        str, typer.Argument(metavar="B", help="Candidate: folder or name.", callback=run_folder)
    ],
    policy_file: Annotated[Path, typer.Option("--policy", help="YAML, as configs/gate.yaml.")],
    json_file: JsonFile = None,
    sequential: Annotated[
        bool,
        typer.Option(
            "--sequential",
            help="Anytime-valid intervals, for a run of --until-decided or repeated looks.",
        ),
    ] = False,
) -> None:
    """Check a run against rules; exit code 0: go, 1: no-go, 4: inconclusive."""
    # Imported here because numpy takes long to load, and other commands do not need it.
    from services.cli.comparison_tables import (
        print_findings,
        print_notes,
        print_runs,
    )
    from services.cli.console import stdout_console
    from shared.analysis.compare import compare_runs
    from shared.analysis.gate import Outcome, evaluate
    from shared.analysis.gate_policy import read_policy
    from shared.analysis.runs import read_runs

    policy = read_policy(policy_file)
    runs = read_runs([first, second])
    comparison = compare_runs(*runs)
    report = evaluate(policy, comparison, sequential=sequential)
    console = stdout_console()
    print_runs(console, runs)
    print_notes(console, comparison)
    print_findings(console, report.findings)
    if json_file:
        write_json(json_file, asdict(report))
    rules = f"{', '.join(report.deciding_rules())} (of {len(report.findings)} rules)"
    if report.outcome is Outcome.FAIL:
        raise FindingsError(f"no-go: {rules}")
    if report.outcome is Outcome.UNDECIDED:
        raise UndecidedError(f"inconclusive: {rules}")
    print(f"go: all {len(report.findings)} rules hold")
