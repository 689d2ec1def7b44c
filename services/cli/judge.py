"""`plumb judge`: judge completions that exist already, by one method or by two to compare."""

from typing import Annotated

import typer

from services.cli.comparison import print_comparison
from services.cli.execute import RunRequest, execute
from services.cli.options import (
    AllowUnlocked,
    ConfigFile,
    Embedded,
    Force,
    MethodName,
    Output,
    Overrides,
    UseComputeScore,
    UseSubmit,
    method_named,
    with_method,
)
from services.runner.comparison import compare_folders
from services.runner.preflight import check_judging
from services.runner.problems import LoadedProblems, load_problems
from services.runner.recorded import MatchedCompletions, match_completions
from services.runner.sources import RecordedSource
from shared.config import Config, load_config
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
    method: MethodName = None,
    use_submit_api: UseSubmit = False,
    use_compute_score: UseComputeScore = False,
    compare_with: Annotated[
        str | None,
        typer.Option("--compare-with", help="Judge by this method too and list disagreements."),
    ] = None,
    allow_unlocked: AllowUnlocked = False,
) -> None:
    """Judge completions that exist already; the artifacts are those of a run."""
    flags = ["run.name=judge"] if config is None else []
    resolved = load_config(config, [*flags, *(overrides or [])])
    resolved = with_method(resolved, method, use_submit_api, use_compute_score)
    if output:
        resolved = _into(resolved, output)
    other = _other(resolved, compare_with) if compare_with else None
    paths = data or resolved.data.eval_files
    if not paths:
        raise ConfigError("no data sets: give --data PATH")
    if not completions:
        raise ConfigError("no completions: give --completions FILE")
    loaded = load_problems(resolved.data, paths, allow_unlocked=allow_unlocked)
    matched = match_completions(completions, loaded.problems)
    for wanted in (resolved, other) if other else (resolved,):
        execute(_request(wanted, loaded, matched, completions, embedded, force))
    if other:
        print_comparison(compare_folders(resolved, other))


def _request(
    config: Config,
    loaded: LoadedProblems,
    matched: MatchedCompletions,
    completions: str,
    embedded: bool,
    force: bool,
) -> RunRequest:
    indices = matched.indices()
    answered = [p for p in loaded.problems if (p.dataset, p.problem_id) in indices]
    check_judging(config, answered)
    return RunRequest(
        config=config,
        problems=answered,
        plan=make_plan(answered, lambda p: indices[p.dataset, p.problem_id]),
        embedded=embedded,
        force=force,
        completions=RecordedSource(matched.by_sample),
        source="recorded",
        provenance=loaded.provenance.model_copy(
            update={
                "completions": completions,
                "completions_of_unknown_problems": len(matched.unknown),
                "problems_without_completion": len(matched.missing),
            }
        ),
        notes=[*loaded.notes, *_notes(matched)],
    )


def _other(config: Config, name: str) -> Config:
    """The run to compare with: by another method, into a folder below."""
    method = method_named(name)
    if method == config.judge.method:
        raise ConfigError(f"--compare-with {name}: that is the method itself; name another one")
    changed = config.model_copy(update={"judge": config.judge.with_method(method)})
    return _into(changed, f"{config.output_dir}/{method}")


def _into(config: Config, folder: str) -> Config:
    return config.model_copy(update={"output": config.output.model_copy(update={"dir": folder})})


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
