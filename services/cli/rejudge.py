"""`plumb rejudge`: judge a run's completions again, as a new run that records its parent."""

from typing import Annotated

import typer

from services.cli.execute import RunRequest, execute
from services.cli.options import (
    AllowUnlocked,
    Force,
    MethodName,
    Output,
    RunFolder,
    UseComputeScore,
    UseSubmit,
    with_method,
)
from services.runner.preflight import check_judging
from services.runner.problems import LoadedProblems, load_problems
from services.runner.recorded import RecordedSource, sample_indices
from shared.completions import RecordedCompletion
from shared.config import RULES, Config, validate_config
from shared.config_files import override_document
from shared.errors import DataError
from shared.finished_run import FinishedRun, open_run
from shared.plan import RunPlan, make_plan
from shared.run_record import ParentRun
from shared.schemas import Generation


def rejudge(
    run: RunFolder,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Keys that change.")
    ] = None,
    output: Output = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Where the data files are now.")
    ] = None,
    embedded: Annotated[
        bool,
        typer.Option(
            "--embedded/--no-embedded",
            help="Start Redis, sandbox, judges and aggregator for this run (the default).",
        ),
    ] = True,
    force: Force = False,
    method: MethodName = None,
    use_submit_api: UseSubmit = False,
    use_compute_score: UseComputeScore = False,
    allow_unlocked: AllowUnlocked = False,
) -> None:
    """Judge the completions of a run again, with another method or other limits."""
    parent = open_run(run)
    if stopped := parent.record.stopped:
        raise DataError(f"{parent.folder.shown} {stopped.described}; rejudge a run of all problems")
    config = _config(parent, overrides or [], output or f"{run.rstrip('/')}_rejudged")
    config = with_method(config, method, use_submit_api, use_compute_score, overrides or [])
    paths = data or parent.record.data_files or config.data.eval_files
    loaded = load_problems(config.data, paths, allow_unlocked=allow_unlocked)
    execute(_request(parent, config, loaded, embedded=embedded, force=force))


def _config(parent: FinishedRun, overrides: list[str], output: str) -> Config:
    """The parent's config with the overrides."""
    own = parent.record.config.model_dump(mode="json")
    own["run"]["name"] = ""
    own["output"] |= {"dir": output}
    own["data"]["output_path"] = None  # the file there is the parent's
    own["judge"]["rules"] = RULES
    return validate_config(override_document(own, overrides))


def _request(
    parent: FinishedRun, config: Config, loaded: LoadedProblems, *, embedded: bool, force: bool
) -> RunRequest:
    names: set[tuple[str, str]] = set()
    completions = RecordedSource()
    for one in parent.generations():
        names.add((one.dataset, one.problem_id))
        if one.error is None:
            completions.add(one.sample, _recorded(one))
    _check_data(parent, loaded, names)
    indices = sample_indices(completions.hashes)
    problems = [p for p in loaded.problems if (p.dataset, p.problem_id) in indices]
    plan = make_plan(problems, lambda one: indices[one.dataset, one.problem_id])
    check_judging(config, problems)
    return RunRequest(
        config=config,
        problems=problems,
        plan=plan,
        embedded=embedded,
        force=force,
        completions=completions,
        source="recorded",
        provenance=loaded.provenance.model_copy(
            update={**_inherited(parent), "parent": _parent(parent, plan)}
        ),
        notes=[*loaded.notes, *(f"left out: {line}" for line in parent.skipped)],
    )


def _recorded(generation: Generation) -> RecordedCompletion:
    known = set(RecordedCompletion.model_fields)
    return RecordedCompletion.model_validate(generation.model_dump(include=known))


def _check_data(parent: FinishedRun, loaded: LoadedProblems, names: set[tuple[str, str]]) -> None:
    """Check that the parent's problems, which may be a subset of the data, have not changed.

    Raises:
        DataError: A problem is missing, or prompts or tests have changed.
    """
    problems = {(problem.dataset, problem.problem_id): problem for problem in loaded.problems}
    for dataset, problem_id in sorted(names - problems.keys()):
        raise DataError(
            f"{parent.folder.url}: problem {problem_id!r} of {dataset} is no longer in the data; "
            "give the data of that run with --data"
        )
    judged = [problem for name, problem in problems.items() if name in names]
    now = {one.name: one.sha256 for one in make_plan(judged, lambda _: ()).datasets}
    for before in parent.record.datasets:
        name = before.dataset
        if name in now and now[name] != before.sha256:
            raise DataError(
                f"{parent.folder.url}: {name} has other prompts, tests or problems now (SHA-256 "
                f"{now[name][:12]}…, was {before.sha256[:12]}…); give the data of that run "
                "with --data"
            )


def _inherited(parent: FinishedRun) -> dict[str, object]:
    """The provenance of the completions, which is the parent's."""
    names = ("model", "generator", "prompts", "system_prompt")
    return {name: getattr(parent.record, name) for name in names}


def _parent(parent: FinishedRun, plan: RunPlan) -> ParentRun:
    return ParentRun(
        run=parent.record.run,
        output=parent.folder.shown,
        not_generated=parent.record.samples - len(plan.samples()),
    )
