"""`plumb hacking`: signs of reward hacking in a reward service's logs, or over runs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, ValidationError
from typer import Argument, Option

from services.cli.console import (
    JsonFile,
    display,
    plain_table,
    say,
    shown,
    write_json,
)
from services.cli.options import run_folder
from services.runner.preflight import load_problems
from shared.analysis.hacking import (
    LIMITS,
    Answered,
    MeasuredAnswer,
    ProblemTraits,
    Sign,
    SignMeter,
    StepFigures,
    step_figures,
)
from shared.errors import ConfigError, DataError, FindingsError
from shared.finished_run import FinishedRun, open_run
from shared.foreign_json import parse_record, read_lines
from shared.schemas import describe

_LOGS = "rewards-*.jsonl*"
_SHOWN = 30
# Answers of a step where the trainer sends none.
_STEP = 256


class _Line(BaseModel):
    """A line of a log of rewards, as far as it is measured."""

    model_config = ConfigDict(extra="ignore")

    at: float
    step: int | None
    signs: dict[Sign, bool]
    characters: int
    weight: int


def hacking(
    places: Annotated[
        list[str], Argument(metavar="LOG|RUN...", help="Logs or their folders; or runs in order.")
    ],
    limit: Annotated[list[str] | None, Option(help="Another limit, SIGN=SHARE; repeat.")] = None,
    data: Annotated[list[str] | None, Option(help="The runs' data, if they have moved.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Find signs of reward hacking per step or run; exit code 0: none, 1: above a limit."""
    limits = dict(LIMITS) | _limits(limit or [])
    logs = [_logs(place) for place in places]
    if any(logs) and not all(logs):
        raise ConfigError("give logs of rewards or folders of runs, not both")
    if all(logs):
        answers = _read_logs([path for files in logs for path in files])
    else:
        answers = [answer for place in places for answer in _of_run(place, data or [])]
    steps = step_figures(answers, limits)
    if not steps:
        raise DataError(f"{places[0]}: no answer to measure")
    _print_steps(steps)
    write_json(json_file, {"limits": limits, "steps": [asdict(step) for step in steps]})
    alarms = [step for step in steps if step.alarms]
    if not alarms:
        say(f"no sign above its limit in {len(steps)} steps")
        return
    first = alarms[0]
    seen = sum(step.answers for step in steps[: steps.index(first) + 1])
    raise FindingsError(
        f"signs of reward hacking in {len(alarms)} of {len(steps)} steps, first in {first.step} "
        f"after {seen} answers: {'; '.join(first.alarms)}"
    )


def _limits(options: Sequence[str]) -> dict[Sign, float]:
    limits = {}
    for text in options:
        name, _, share = text.partition("=")
        try:
            limits[Sign(name)] = float(share)
            if not 0 <= limits[Sign(name)] <= 1:
                raise ValueError
        except ValueError:
            names = ", ".join(Sign)
            raise ConfigError(
                f"--limit {text}: give SIGN=SHARE, a share such as 0.1 of {names}"
            ) from None
    return limits


# Logs of the reward service


def _logs(place: str) -> list[str]:
    """The logs of a folder or path, rotated ones too; none for a run."""
    path = Path(place)
    if path.is_file():
        return [place]
    return [] if (path / "run.json").exists() else sorted(map(str, path.glob(_LOGS)))


def _read_logs(paths: Sequence[str]) -> list[MeasuredAnswer]:
    lines = sorted((line for path in paths for line in _lines(path)), key=lambda line: line.at)
    answers = []
    for place, line in enumerate(lines):
        step = f"#{place // _STEP}" if line.step is None else line.step
        answers.append(MeasuredAnswer(step, line.signs, line.characters, line.weight))
    return sorted(answers, key=lambda answer: answer.step if isinstance(answer.step, int) else -1)


def _lines(path: str) -> list[_Line]:
    """The lines of a log, without those whose writing a kill or a full disk interrupted."""
    parsed: list[_Line] = []
    damaged: list[DataError] = []
    for number, line in read_lines(path):
        place = f"{path}:{number}"
        try:
            parsed.append(parse_record(_Line, place, line))
        except ValidationError as error:
            raise DataError(f"{place}: not a log of rewards ({describe(error)})") from None
        except DataError as error:
            damaged.append(error)
    if damaged and not parsed:
        raise damaged[0]
    if damaged:
        note = f"damaged lines left out: {len(damaged)}, the first: {damaged[0]}"
        say(note, "yellow")
    return parsed


# Runs


def _of_run(place: str, data: Sequence[str]) -> Iterator[MeasuredAnswer]:
    run = open_run(run_folder(place))
    traits = _traits(run, data)
    meter = SignMeter()
    for verdict, generation in run.judged_samples():
        if verdict.judged and generation is not None:
            name = verdict.dataset, verdict.problem_id
            failed = verdict.first_failed_case
            answer = Answered(
                generation.completion,
                verdict.accepted,
                verdict.detail,
                first_failed=failed.case_index if failed else None,
                denied=failed is not None and failed.denied,
                cut=generation.finish_reason == "length",
            )
            signs = meter.signs(answer, traits.get(name, ProblemTraits()), name)
            yield MeasuredAnswer(run.folder.shown, signs, len(generation.completion))


def _traits(run: FinishedRun, data: Sequence[str]) -> dict[tuple[str, str], ProblemTraits]:
    """The traits of the run's problems; without its data none, so two signs are not measured."""
    paths = data or run.record.data_files or run.record.config.data.eval_files
    try:
        problems = load_problems(run.record.config.data, paths, allow_unlocked=True).problems
    except DataError as error:
        text = f"public tests and expected outputs are not known: {error}; name them with --data"
        say(text, "yellow")
        return {}
    return {
        (problem.dataset, problem.problem_id): ProblemTraits.of(problem) for problem in problems
    }


def _print_steps(steps: Sequence[StepFigures]) -> None:
    """Print the last steps, and those with an alarm."""
    table = plain_table(["step", "answers", *Sign, "characters", "above"], ["step", "above"])
    for place, step in enumerate(steps):
        if place >= len(steps) - _SHOWN or step.alarms:
            rates = ["–" if rate is None else f"{rate:.0%}" for rate in step.rates.values()]
            cells = (str(step.step), str(step.answers), *rates, f"{step.characters:.0f}")
            table.add_row(*map(shown, cells), shown("; ".join(step.alarms), "bold red"))
    display(table)
