"""`plumb judge` and `rejudge`: judge recorded completions, or those of a run again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from typer import Option

from services.cli import options
from services.cli.execute import RunRequest, execute
from services.runner.preflight import LoadedProblems, check_judging, load_problems
from services.runner.sources import RecordedSource, has_tests, match_completions
from shared.completions import RecordedCompletion
from shared.config import RULES, Config, Method, load_config
from shared.config_files import load_document, overridden_keys, validate_document
from shared.errors import ConfigError, DataError
from shared.finished_run import FinishedRun, open_run
from shared.run_record import ParentRun, make_plan
from shared.verl_keys import notices

_MAX_NAMES = 5


@options.key_options("name", "output", "output_dir", "sandbox_url")
def judge(
    overrides: options.Overrides = None,
    data: options.DataPaths = None,
    completions: Annotated[
        str,
        Option(help="JSONL with problem_id, completion (or task_id, solution); or verl's parquet."),
    ] = "",
    config: options.ConfigFile = None,
    embedded: options.Embedded = False,
    force: options.Force = False,
    allow_unlocked: options.AllowUnlocked = False,
    flags: Sequence[str] = (),
    method: Method | None = None,
) -> None:
    """Judge recorded completions; the artifacts are those of a run."""
    chosen = [*flags, *(overrides or [])]
    folder = ["output.dir=outputs/judge"] if config is None else []
    resolved = options.with_name(load_config(config, [*folder, *chosen]), overridden_keys(chosen))
    resolved = options.with_method(resolved, method, overrides or [])
    completions = completions or resolved.data.completions
    if not completions:
        raise ConfigError("no completions: give --completions FILE")
    paths = data or resolved.data.eval_files
    if not paths:  # verl's table may have the tests beside the responses
        paths = [completions] if has_tests(completions) else options.default_data()
    loaded = load_problems(resolved.data, paths, allow_unlocked=allow_unlocked)
    matched = match_completions(completions, loaded.problems, resolved)
    notes = [*notices(resolved.run.verl_keys), *loaded.notes]
    for names, subject in (
        (matched.unknown, "completions of unknown problems"),
        (matched.missing, "problems without a completion"),
    ):
        if names:
            more = ", …" if len(names) > _MAX_NAMES else ""
            notes.append(f"{len(names)} {subject}: {', '.join(names[:_MAX_NAMES])}{more}")
    provenance = {
        "completions": completions,
        "completions_of_unknown_problems": len(matched.unknown),
        "problems_without_completion": len(matched.missing),
    }
    request = _request(resolved, loaded, matched, notes, provenance, embedded, force)
    execute(replace(request, sandboxes=options.own_sandboxes(resolved, chosen)))


@options.key_options("output")
def rejudge(
    run: options.RunFolder,
    overrides: options.Overrides = None,
    data: options.DataPaths = None,
    embedded: Annotated[
        bool, Option("--embedded/--no-embedded", help="Start all services; the default here.")
    ] = True,
    force: options.Force = False,
    allow_unlocked: options.AllowUnlocked = False,
    flags: Sequence[str] = (),
    method: Method | None = None,
) -> None:
    """Judge the completions of a run again, with another method or other limits."""
    parent = open_run(run)
    record = parent.record
    if record.stopped:
        raise DataError(
            f"{parent.folder.shown} {record.stopped.described}; rejudge a run of all problems"
        )
    config = _config(parent, f"{run.rstrip('/')}_rejudged", [*flags, *(overrides or [])])
    config = options.with_method(config, method, overrides or [])
    paths = data or record.data_files or config.data.eval_files
    loaded = load_problems(config.data, paths, allow_unlocked=allow_unlocked)
    names: set[tuple[str, str]] = set()
    completions = RecordedSource()
    fields = set(RecordedCompletion.model_fields)
    for generation in parent.generations():
        names.add((generation.dataset, generation.problem_id))
        if generation.error is None:
            recorded = RecordedCompletion.model_validate(generation.model_dump(include=fields))
            completions.add(generation.sample, recorded)
    _check_data(parent, loaded, names)
    notes = [*loaded.notes, *(f"left out: {line}" for line in parent.skipped)]
    lineage = ParentRun(
        run=record.run,
        output=parent.folder.shown,
        not_generated=record.samples - len(completions.hashes),
    )
    # The provenance of the completions is the parent's.
    inherited = ("model", "generator", "prompts", "system_prompt")
    provenance = {"parent": lineage, **{name: getattr(record, name) for name in inherited}}
    execute(_request(config, loaded, completions, notes, provenance, embedded, force))


def _request(
    config: Config,
    loaded: LoadedProblems,
    completions: RecordedSource,
    notes: Sequence[str],
    provenance: Mapping[str, object],
    embedded: bool,
    force: bool,
) -> RunRequest:
    """A run of the problems that have completions; ``provenance`` is added to that of the data."""
    indices = completions.indices()
    limited = loaded.limited(config.data.limit)
    problems = [p for p in limited if (p.dataset, p.problem_id) in indices]
    check_judging(config, problems)
    return RunRequest(
        config=config,
        problems=problems,
        plan=make_plan(problems, lambda problem: indices[problem.dataset, problem.problem_id]),
        embedded=embedded,
        force=force,
        completions=completions,
        source="recorded",
        provenance=loaded.provenance.model_copy(update=provenance),
        notes=notes,
    )


def _config(parent: FinishedRun, output: str, overrides: Sequence[str]) -> Config:
    """The parent's config with the overrides."""
    document = parent.record.config.model_dump(mode="json")
    document["run"]["name"] = ""
    document["output"] |= {"dir": output}
    document["data"]["output_path"] = None  # the file there is the parent's
    document["judge"]["rules"] = RULES
    return validate_document(Config, load_document(document, overrides))


def _check_data(parent: FinishedRun, loaded: LoadedProblems, names: set[tuple[str, str]]) -> None:
    """Check that the parent's problems, which may be a subset of the data, have not changed.

    Raises:
        DataError: A problem is missing, or prompts or tests have changed.
    """
    problems = {(problem.dataset, problem.problem_id): problem for problem in loaded.problems}
    for dataset, problem_id in sorted(names - problems.keys()):
        raise DataError(
            f"{parent.folder.url}: problem {problem_id!r} of {dataset} is not in the data; give "
            "the data of that run with --data"
        )
    judged = [problem for name, problem in problems.items() if name in names]
    hashes = {plan.name: plan.sha256 for plan in make_plan(judged, lambda _: ()).datasets}
    for before in parent.record.datasets:
        name = before.dataset
        if name in hashes and hashes[name] != before.sha256:
            raise DataError(
                f"{parent.folder.url}: {name} has other prompts, tests or problems now (SHA-256 "
                f"{hashes[name][:12]}…, was {before.sha256[:12]}…); give the data of that run "
                "with --data"
            )
