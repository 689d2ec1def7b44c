"""`plumb judge`: judge recorded completions."""

from collections.abc import Sequence
from typing import Annotated

import typer

from services.cli.execute import RunRequest, execute
from services.cli.options import (
    AllowUnlocked,
    ConfigFile,
    Embedded,
    Force,
    MethodName,
    Output,
    OutputDir,
    Overrides,
    RunName,
    SandboxUrl,
    UseComputeScore,
    UseSubmit,
    default_data,
    flags_as_overrides,
    own_sandboxes,
    with_method,
    with_name,
)
from services.runner.preflight import check_judging
from services.runner.problems import LoadedProblems, load_problems
from services.runner.recorded import (
    MatchedCompletions,
    has_tests,
    match_completions,
    sample_indices,
)
from shared.config import Config, load_config
from shared.config_files import overridden_keys
from shared.errors import ConfigError
from shared.plan import make_plan
from shared.verl_translation import notices

_MAX_NAMES = 5


def judge(
    overrides: Overrides = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Parquet file or folder of them.")
    ] = None,
    completions: Annotated[
        str,
        typer.Option(
            "--completions",
            help="JSONL with problem_id, completion (or task_id, solution); or verl's parquet.",
        ),
    ] = "",
    config: ConfigFile = None,
    name: RunName = None,
    output: Output = None,
    embedded: Embedded = False,
    force: Force = False,
    method: MethodName = None,
    use_submit_api: UseSubmit = False,
    use_compute_score: UseComputeScore = False,
    allow_unlocked: AllowUnlocked = False,
    sandbox_url: SandboxUrl = None,
    output_dir: OutputDir = None,
) -> None:
    """Judge recorded completions; the artifacts are those of a run."""
    given = overrides or []
    folder = ["output.dir=outputs/judge"] if config is None else []
    flags = flags_as_overrides(
        {
            "--sandbox-url": ("sandbox.url", sandbox_url),
            "--name": ("run.name", name),
            "--output": ("output.dir", output),
            "--output-dir": ("output.dir", output_dir),
        },
        given,
    )
    resolved = load_config(config, [*folder, *flags, *given])
    resolved = with_name(resolved, overridden_keys([*flags, *given]))
    resolved = with_method(resolved, method, use_submit_api, use_compute_score, given)
    completions = completions or resolved.data.completions
    if not completions:
        raise ConfigError("no completions: give --completions FILE")
    paths = data or resolved.data.eval_files
    if not paths:  # verl's table may have the tests beside the responses
        paths = [completions] if has_tests(completions) else default_data()
    loaded = load_problems(resolved.data, paths, allow_unlocked=allow_unlocked)
    matched = match_completions(completions, loaded.problems, resolved)
    sandboxes = own_sandboxes(resolved, [*flags, *given])
    execute(_request(resolved, loaded, matched, completions, embedded, force, sandboxes))


def _request(
    config: Config,
    loaded: LoadedProblems,
    matched: MatchedCompletions,
    completions: str,
    embedded: bool,
    force: bool,
    sandboxes: Sequence[str],
) -> RunRequest:
    indices = sample_indices(matched.by_sample.hashes)
    answered = [p for p in loaded.problems if (p.dataset, p.problem_id) in indices]
    check_judging(config, answered)
    return RunRequest(
        config=config,
        problems=answered,
        plan=make_plan(answered, lambda p: indices[p.dataset, p.problem_id]),
        embedded=embedded,
        force=force,
        completions=matched.by_sample,
        source="recorded",
        sandboxes=sandboxes,
        provenance=loaded.provenance.model_copy(
            update={
                "completions": completions,
                "completions_of_unknown_problems": len(matched.unknown),
                "problems_without_completion": len(matched.missing),
            }
        ),
        notes=[*notices(config.run.verl_keys), *loaded.notes, *_notes(matched)],
    )


def _notes(matched: MatchedCompletions) -> list[str]:
    notes = []
    if matched.unknown:
        notes.append(
            f"{len(matched.unknown)} completions of unknown problems: {_preview(matched.unknown)}"
        )
    if matched.missing:
        notes.append(
            f"{len(matched.missing)} problems without a completion: {_preview(matched.missing)}"
        )
    return notes


def _preview(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
