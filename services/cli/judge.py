"""`plumb judge`: judge completions that exist already."""

from typing import Annotated

import typer

from services.cli.execute import Order, execute
from services.cli.options import ConfigFile, Embedded, Force, Output, Overrides
from services.runner.recorded import MatchedCompletions, match_completions
from services.runner.sources import RecordedSource
from shared.config import load_config
from shared.datasets import read_datasets
from shared.errors import ConfigError
from shared.plan import make_plan

_SHOWN = 5


def judge(
    overrides: Overrides = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Parquet file or folder of them.")
    ] = None,
    completions: Annotated[
        str, typer.Option("--completions", help="JSONL with problem_id and completion.")
    ] = "",
    config: ConfigFile = None,
    output: Output = None,
    embedded: Embedded = False,
    force: Force = False,
) -> None:
    """Judge completions that exist already; the artifacts are those of a run."""
    flags = ["run.name=judge"] if config is None else []
    resolved = load_config(config, [*flags, *(overrides or [])])
    if output:
        resolved = resolved.model_copy(
            update={"output": resolved.output.model_copy(update={"dir": output})}
        )
    paths = data or resolved.data.eval_files
    if not paths:
        raise ConfigError("no data sets: give --data PATH")
    if not completions:
        raise ConfigError("no completions: give --completions FILE")
    problems = read_datasets(paths)
    matched = match_completions(completions, problems)
    indices = matched.indices()
    answered = [p for p in problems if (p.dataset, p.problem_id) in indices]
    order = Order(
        config=resolved,
        problems=answered,
        plan=make_plan(answered, lambda p: indices[p.dataset, p.problem_id]),
        embedded=embedded,
        force=force,
        completions=RecordedSource(matched.by_sample),
        source="recorded",
        facts={
            "completions": completions,
            "completions_of_unknown_problems": len(matched.unknown),
            "problems_without_completion": len(matched.missing),
        },
        notes=_notes(matched),
    )
    execute(order)


def _notes(matched: MatchedCompletions) -> list[str]:
    notes = []
    if matched.unknown:
        notes.append(
            f"{len(matched.unknown)} completions of unknown problems: {_few(matched.unknown)}"
        )
    if matched.missing:
        notes.append(
            f"{len(matched.missing)} problems without a completion: {_few(matched.missing)}"
        )
    return notes


def _few(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
