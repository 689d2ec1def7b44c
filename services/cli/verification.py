"""Verification of reference solutions: judge them like a run's completions (embedded stack)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from services.cli.execute import RunRequest, execute
from services.cli.options import yaml_string
from services.data.records import ReferenceSolution
from services.runner.preflight import check_judging
from services.runner.sources import RecordedSource
from shared.completions import RecordedCompletion
from shared.config import load_config
from shared.errors import IncompleteRunError
from shared.finished_run import FinishedRun, open_run
from shared.reference import problem_digest
from shared.run_record import make_plan
from shared.schemas import Problem, SampleId, Verdict, sha256
from shared.statuses import FailureKind


class SolutionJudge:
    """Judges reference solutions, with one run per language.

    Args:
        folder: Parent folder of the runs; solutions judged there before are not judged again.
        overrides: ``key=value`` of the runs' config, for instance ``sandbox.timeout=20``.
        name: Name of the runs.
        quiet: Print no summaries.
    """

    def __init__(
        self,
        folder: Path,
        overrides: Sequence[str],
        *,
        name: str = "solutions",
        quiet: bool = False,
    ) -> None:
        self._folder = folder
        self._overrides = overrides
        self._name = name
        self._quiet = quiet

    def __call__(self, solutions: Sequence[ReferenceSolution]) -> list[Verdict]:
        """Judge all solutions; returns the verdicts on the rejected ones.

        A solution without a verdict has a problem with a broken checker.

        Raises:
            IncompleteRunError: Some have no verdict; calling it again resumes.
        """
        verdicts = (verdict for run in self.runs(solutions) for verdict in run.verdicts())
        return [verdict for verdict in verdicts if not verdict.accepted]

    def runs(self, solutions: Sequence[ReferenceSolution]) -> Iterator[FinishedRun]:
        """Judge all solutions; yields the run of each language. Errors are those of a call."""
        for language in sorted({item.solution.language for item in solutions}):
            chosen = [item for item in solutions if item.solution.language == language]
            yield self._judge(language, chosen)

    def _judge(self, language: str, solutions: Sequence[ReferenceSolution]) -> FinishedRun:
        problems: dict[tuple[str, str], Problem] = {}
        numbers: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        completions = RecordedSource()
        parts: list[str] = []
        for item in solutions:
            name = (item.problem.dataset, item.problem.problem_id)
            problems[name] = item.problem
            numbers[name].append(item.number - 1)
            recorded = RecordedCompletion(problem_id=name[1], completion=item.completion)
            completions.add(SampleId(*name, item.number - 1), recorded)
            parts += [*name, str(item.number), item.completion]
        # Other solutions or tests get another folder, and so another run.
        parts = [*self._overrides, *map(problem_digest, problems.values()), *parts]
        folder = self._folder / f"{language}-{sha256(chr(0).join(parts))[:12]}"
        place = yaml_string(str(folder))
        own = [f"run.name={self._name}", f"judge.language={language}", f"output.dir={place}"]
        config = load_config(None, [*self._overrides, *own])
        judged = list(problems.values())
        check_judging(config, judged)
        request = RunRequest(
            config=config,
            problems=judged,
            plan=make_plan(judged, lambda problem: numbers[problem.dataset, problem.problem_id]),
            embedded=True,
            force=False,
            completions=completions,
            source="reference solutions",
            quiet=self._quiet,
        )
        try:
            execute(request)
        except IncompleteRunError:
            unjudged = [v for v in open_run(str(folder)).verdicts() if not v.judged]
            if not all(map(_checker_failed, unjudged)):
                raise
        return open_run(str(folder))


def _checker_failed(verdict: Verdict) -> bool:
    """Whether a sample has no verdict because its problem's checker is broken."""
    return any(failure.kind == FailureKind.CHECKER for failure in verdict.infra_failures)
