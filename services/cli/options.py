"""Options that several commands share."""

from typing import Annotated

import typer

Embedded = Annotated[
    bool,
    typer.Option("--embedded", help="Start Redis, sandbox, judges and aggregator for this run."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Throw away what the output folder holds and start anew.")
]
Output = Annotated[str | None, typer.Option("--output", help="Folder of the run's artifacts.")]
ConfigFile = Annotated[str | None, typer.Option("--config", help="YAML file of the run.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys of the config to change.")
]
