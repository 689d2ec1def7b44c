"""`plumb compare`: compare finished runs over the same problems, sample by sample."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from services.cli.options import RunFolders
from shared.errors import ConfigError, OutputError
from shared.files import write_text

JsonFile = Annotated[Path | None, typer.Option("--json", help="File for the results as JSON.")]


def compare(
    runs: RunFolders,
    show_flips: Annotated[
        bool, typer.Option("--show-flips", help="List the samples accepted in only one run.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Warn if the protocols differ, and compare anyway.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Compare runs with the first one: differences, confidence intervals, detectable effects."""
    # Imported here because numpy takes long to import, and other commands do not need it.
    from services.cli import comparison_tables as tables
    from services.cli.console import stdout_console
    from shared.analysis.compare import compare_runs, comparison_document, require_same_protocol
    from shared.analysis.runs import read_runs

    if len(runs) < 2:
        raise ConfigError("one run cannot be compared; give two or more folders")
    first, *others = read_runs(runs)
    comparisons = [compare_runs(first, other) for other in others]
    for comparison in comparisons:
        if not force:
            require_same_protocol(comparison)
        for line in comparison.warnings:
            print(f"plumb: {line}", file=sys.stderr)
    console = stdout_console()
    tables.print_runs(console, [first, *others])
    for comparison in comparisons:
        tables.print_notes(console, comparison)
    if len(comparisons) > 1:
        tables.print_overview(console, comparisons)
    else:
        tables.print_comparison(console, comparisons[0])
    for comparison in comparisons:
        tables.print_unpaired(console, comparison)
        if show_flips:
            tables.print_flips(console, comparison)
    if json_file:
        write_json(json_file, asdict(comparison_document(comparisons)))


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """Write the results as JSON.

    Raises:
        OutputError: The file cannot be written.
    """
    text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    try:
        write_text(path, text + "\n")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that exists"
        ) from None
