"""`plumb judge`: judge recorded completions, with one method or with two to compare."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from services.cli.display import printable, stdout_console
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
    flags_as_overrides,
    judged_by,
    method_named,
    with_method,
    with_name,
)
from services.runner.preflight import check_judging
from services.runner.problems import LoadedProblems, load_problems
from services.runner.sources import (
    MatchedCompletions,
    match_completions,
    sample_indices,
)
from shared.analysis.agreement import (
    Disagreement,
    MethodComparison,
    MethodVerdict,
    compare_methods,
)
from shared.artifacts import OutputFolder
from shared.config import Config, load_config
from shared.config_files import overridden_keys
from shared.errors import ConfigError
from shared.finished_run import open_run
from shared.plan import make_plan
from shared.text import not_run_note
from shared.verl_translation import notices

_COMPARISON = "comparison.json"
_MAX_NAMES = 5
_MAX_DISAGREEMENTS = 30
_MAX_CASES = 8


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
    compare_with: Annotated[
        str | None,
        typer.Option("--compare-with", help="Judge by this method too and list disagreements."),
    ] = None,
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
    other = _compared_config(resolved, compare_with) if compare_with else None
    paths = data or resolved.data.eval_files
    if not paths:
        of = f" of the problems that {completions} answers" if completions else ""
        raise ConfigError(f"no data sets: give --data PATH{of}")
    if not completions:
        raise ConfigError("no completions: give --completions FILE")
    loaded = load_problems(resolved.data, paths, allow_unlocked=allow_unlocked)
    matched = match_completions(completions, loaded.problems, resolved)
    for one in (resolved, other) if other else (resolved,):
        execute(_request(one, loaded, matched, completions, embedded, force))
    if other:
        _compare(resolved, other)


def _request(
    config: Config,
    loaded: LoadedProblems,
    matched: MatchedCompletions,
    completions: str,
    embedded: bool,
    force: bool,
) -> RunRequest:
    indices = sample_indices(matched.by_sample)
    answered = [p for p in loaded.problems if (p.dataset, p.problem_id) in indices]
    check_judging(config, answered)
    return RunRequest(
        config=config,
        problems=answered,
        plan=make_plan(
            answered, lambda p: indices[p.dataset, p.problem_id], config.data.max_samples
        ),
        embedded=embedded,
        force=force,
        completions=matched.by_sample,
        source="recorded",
        provenance=loaded.provenance.model_copy(
            update={
                "completions": completions,
                "completions_of_unknown_problems": len(matched.unknown),
                "problems_without_completion": len(matched.missing),
            }
        ),
        notes=[*notices(config.run.verl_keys), *loaded.notes, *_notes(matched)],
    )


def _compared_config(config: Config, name: str) -> Config:
    """The config of the run to compare with: another method, and a subfolder for its artifacts."""
    method = method_named(name)
    if method == config.judge.method:
        raise ConfigError(f"--compare-with {name}: the run already uses it; name another method")
    compared = _with_output(judged_by(config, method), f"{config.output_dir}/{method}")
    # The completions are the same, and one of the runs writes them.
    data = compared.data.model_copy(update={"output_path": None})
    return compared.model_copy(update={"data": data})


def _with_output(config: Config, folder: str) -> Config:
    return config.model_copy(update={"output": config.output.model_copy(update={"dir": folder})})


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


# Comparison of two methods


def _compare(first: Config, second: Config) -> None:
    """Compare the verdicts of two runs, write ``comparison.json`` and print the disagreements.

    Raises:
        OutputError: Verdicts cannot be read, or the file cannot be written.
    """
    verdicts = [list(open_run(one.output_dir).verdicts()) for one in (first, second)]
    comparison = compare_methods((first.judge.method, second.judge.method), *verdicts)
    folder = OutputFolder(first.output_dir)
    folder.write_json(
        _COMPARISON,
        {
            "methods": comparison.methods,
            "samples": comparison.samples,
            "agreeing": comparison.agreeing,
            "disagreements": [_document(comparison, one) for one in comparison.disagreements],
        },
    )
    _print_comparison(comparison, f"{folder.shown}/{_COMPARISON}")


def _document(comparison: MethodComparison, found: Disagreement) -> dict[str, object]:
    first, second = comparison.methods
    cases = [{"case": one.case, first: one.first, second: one.second} for one in found.cases]
    return {**asdict(found), "cases": cases}


def _print_comparison(comparison: MethodComparison, file: str) -> None:
    """Print the disagreements, starting with those on acceptance, and the path of the full list."""
    console = stdout_console()
    first, second = comparison.methods
    differing = sorted(comparison.disagreements, key=lambda found: not found.on_acceptance)
    console.print(
        f"\n{first} and {second} agree on {comparison.agreeing} of {comparison.samples} samples",
        highlight=False,
    )
    if differing:
        console.print(_table(comparison, differing[:_MAX_DISAGREEMENTS]))
    if len(differing) > _MAX_DISAGREEMENTS:
        console.print(f"… and {len(differing) - _MAX_DISAGREEMENTS} more", highlight=False)
    console.print(f"full comparison in {file}", highlight=False, soft_wrap=True)


def _table(comparison: MethodComparison, shown: list[Disagreement]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("sample", *comparison.methods, "cases that differ"):
        table.add_column(heading, overflow="fold")
    for found in shown:
        name = f"{found.dataset} {found.problem_id} #{found.sample_index}"
        table.add_row(
            escape(printable(name)), _verdict(found.first), _verdict(found.second), _cases(found)
        )
    return table


def _verdict(verdict: MethodVerdict) -> str:
    detail = f" ({verdict.detail})" if verdict.detail else ""
    passed = f"{verdict.cases_passed}/{verdict.cases_total}{not_run_note(verdict.cases_not_run)}"
    return escape(printable(f"{verdict.final_status}{detail} {passed}"))


def _cases(found: Disagreement) -> str:
    listed = [
        f"{one.case}: {_code(one.first)}/{_code(one.second)}" for one in found.cases[:_MAX_CASES]
    ]
    more = len(found.cases) - len(listed)
    return ", ".join(listed) + (f", … {more} more" if more > 0 else "")


def _code(code: int | None) -> str:
    return "–" if code is None else str(code)
