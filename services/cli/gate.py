"""`plumb gate`: may the second run's model take the place of the first one's?"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.compare import JsonFile, write_json
from shared.errors import DataError, FindingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.cli.analysis_rules import Finding


def gate(
    first: Annotated[str, typer.Argument(metavar="A", help="Folder of the run to hold against.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Folder of the run in question.")],
    policy_file: Annotated[Path, typer.Option("--policy", help="YAML, as configs/gate.yaml.")],
    json_file: JsonFile = None,
) -> None:
    """Hold a run against rules: exit code 0 is go, 1 no-go, 2 that the data cannot say."""
    # What computes is imported for this command alone; the others start sooner without it.
    from services.cli.analysis_comparison import compare_runs
    from services.cli.analysis_display import print_findings, print_runs
    from services.cli.analysis_gate import decide, evaluate
    from services.cli.analysis_policy import read_policy
    from services.cli.analysis_runs import read_runs
    from services.cli.display import stdout_console

    policy = read_policy(policy_file)
    runs = read_runs([first, second])
    findings = evaluate(policy, compare_runs(*runs))
    outcome = decide(findings)
    console = stdout_console()
    print_runs(console, runs)
    print_findings(console, findings)
    if json_file:
        document = {"outcome": outcome, "findings": [asdict(finding) for finding in findings]}
        write_json(json_file, document)
    _conclude(findings, outcome)


def _conclude(findings: "Sequence[Finding]", outcome: str) -> None:
    """Say go, or raise what carries the exit code.

    Raises:
        FindingsError: no-go.
        DataError: The data cannot say.
    """
    named = [
        " ".join(filter(None, (one.dataset, one.rule)))
        for one in findings
        if one.outcome == outcome
    ]
    if outcome == "fail":
        raise FindingsError(f"no-go: {', '.join(named)} (of {len(findings)} rules)")
    if outcome == "undecided":
        raise DataError(f"cannot say: {', '.join(named)} (of {len(findings)} rules)")
    print(f"go: all {len(findings)} rules are kept")
