"""Verification of reference solutions: judge them like a run's completions (embedded stack)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from services.cli.execute import RunRequest, execute
from services.cli.options import yaml_string
from services.data.records import ReferenceSolution
from services.runner.preflight import check_judging
from services.runner.sources import RecordedSource
from shared.completions import RecordedCompletion
from shared.config import Config, load_config
from shared.errors import IncompleteRunError
from shared.finished_run import FinishedRun, open_run
from shared.reference import problem_digest
from shared.run_record import make_plan
from shared.schemas import Problem, SampleId, Verdict, sha256
from shared.statuses import FailureKind


def judge_solutions(
    solutions: Sequence[ReferenceSolution],
    folder: Path,
    overrides: Sequence[str],
    *,
    name: str = "solutions",
    quiet: bool = False,
) -> Iterator[FinishedRun]:
    """Judge reference solutions; yields a run per language.

    A solution without a verdict has a problem with a broken checker.

    Args:
        solutions: The solutions.
        folder: Parent folder of the runs; solutions judged there before are not judged again.
        overrides: ``key=value`` of the runs' config, for instance ``sandbox.timeout=20``.
        name: Name of the runs.
        quiet: Print no summaries.

    Raises:
        IncompleteRunError: Other solutions have no verdict; calling it again resumes.
    """
    for language in sorted({item.solution.language for item in solutions}):
        chosen = [item for item in solutions if item.solution.language == language]
        problems = {(s.problem.dataset, s.problem.problem_id): s.problem for s in chosen}
        completions = RecordedSource()
        parts = [*overrides, *map(problem_digest, problems.values())]
        for item in chosen:
            sample = SampleId(item.problem.dataset, item.problem.problem_id, item.number)
            parts += [sample.key, item.completion]
            recorded = RecordedCompletion(problem_id=sample.problem_id, completion=item.completion)
            completions.add(sample, recorded)
        # Other solutions or tests get another folder, and so another run.
        output = str(folder / f"{language}-{sha256(chr(0).join(parts))[:12]}")
        own = (f"run.name={name}", f"judge.language={language}")
        config = load_config(None, [*overrides, *own, f"output.dir={yaml_string(output)}"])
        yield _judge(config, list(problems.values()), completions, quiet=quiet)


def _judge(
    config: Config, problems: list[Problem], completions: RecordedSource, *, quiet: bool
) -> FinishedRun:
    check_judging(config, problems)
    indices = completions.indices()
    request = RunRequest(
        config=config,
        problems=problems,
        plan=make_plan(problems, lambda problem: indices[problem.dataset, problem.problem_id]),
        embedded=True,
        force=False,
        completions=completions,
        source="reference solutions",
        quiet=quiet,
    )
    try:
        execute(request)
    except IncompleteRunError:
        unjudged = [v for v in open_run(config.output_dir).verdicts() if not v.judged]
        if not all(map(_checker_failed, unjudged)):
            raise
    return open_run(config.output_dir)


def _checker_failed(verdict: Verdict) -> bool:
    """Whether a sample has no verdict because its problem's checker is broken."""
    return any(failure.kind == FailureKind.CHECKER for failure in verdict.infra_failures)
