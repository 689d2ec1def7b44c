"""`plumb compare`: finished runs over the same problems, sample by sample."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shared.errors import ConfigError, OutputError
from shared.files import write_text

JsonFile = Annotated[Path | None, typer.Option("--json", help="File for all that was found.")]


def compare(
    runs: Annotated[list[str], typer.Argument(help="Folders of two or more finished runs.")],
    show_flips: Annotated[
        bool, typer.Option("--show-flips", help="List what one run alone has accepted.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Warn where the protocol differs, and go on.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Compare runs with the first: differences, how sure they are, what could have been seen."""
    # What computes is imported for this command alone; the others start sooner without it.
    from services.cli.analysis_comparison import compare_runs, comparison_document, refuse
    from services.cli.analysis_display import (
        print_comparison,
        print_flips,
        print_left_out,
        print_overview,
        print_runs,
    )
    from services.cli.analysis_runs import read_runs
    from services.cli.display import stdout_console

    if len(runs) < 2:
        raise ConfigError("one run has nothing to be compared with; name two folders or more")
    first, *others = read_runs(runs)
    comparisons = [compare_runs(first, other) for other in others]
    for one in comparisons:
        if not force:
            refuse(one)
        for line in one.warnings:
            print(f"plumb: {line}", file=sys.stderr)
    console = stdout_console()
    print_runs(console, [first, *others])
    if len(comparisons) > 1:
        print_overview(console, comparisons)
    else:
        print_comparison(console, comparisons[0])
    for one in comparisons:
        print_left_out(console, one)
        if show_flips:
            print_flips(console, one)
    if json_file:
        write_json(json_file, comparison_document(comparisons))


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write what was found.

    Raises:
        OutputError: The file cannot be written.
    """
    try:
        write_text(path, json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that exists"
        ) from None
