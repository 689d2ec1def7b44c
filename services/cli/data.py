"""`plumb data`: data sets in, parquet out."""

from pathlib import Path
from typing import Annotated

import typer

from services.data.importer import SourceKind, import_dataset

app = typer.Typer(help="Bring data sets into the form that a run reads.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """Bring data sets into the form that a run reads."""


@app.command("import")
def import_(
    kind: Annotated[SourceKind, typer.Argument(help="Layout of the source.")],
    source: Annotated[str, typer.Option("--source", help="File as it is published.")],
    output: Annotated[Path, typer.Option("--output", help="Folder, or a .parquet file.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the data set.")] = None,
    split: Annotated[str | None, typer.Option("--split", help="train, valid or test.")] = None,
    ids: Annotated[str | None, typer.Option("--ids", help="MBPP: task ids, e.g. 11-210.")] = None,
    include_generated: Annotated[
        bool, typer.Option("--include-generated", help="CodeContests: the generated tests too.")
    ] = False,
) -> None:
    """Read a public file into DATASET.parquet."""
    result = import_dataset(
        kind,
        source,
        output,
        name=name,
        split=split,
        ids=ids,
        include_generated=include_generated,
    )
    print(f"{result.path}: {result.problems} problems of {result.dataset}")
    if result.dropped:
        print(f"{len(result.dropped)} rows dropped, listed in {result.dropped_path}")
