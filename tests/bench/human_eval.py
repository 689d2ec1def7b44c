"""HumanEval: the whole command `plumb judge --embedded` against openai/human-eval's evaluator.

Both get the recorded answers to all 164 problems and a time limit of 3 s. Theirs gets each answer
as the continuation of its prompt.
"""

import json
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.data.importer import import_dataset
from shared.extraction import extract
from shared.schemas import HumanEvalTests
from shared.statuses import ExtractionReason
from tests.bench.answers import Answer, humaneval_answers, real_data
from tests.bench.passes import in_turn, spread
from tests.e2e import plumb

_PROBLEMS = 164
_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Command:
    """One run of a command: seconds, CPU seconds of all its processes, accepted by problem.

    ``judging`` is None where the command does not record when it judged.
    """

    wall: float
    cpu: float
    accepted: Mapping[str, bool]
    judging: float | None = None


def print_human_eval(python: Path, folder: Path, count: int, workers: Sequence[int]) -> None:
    """Print the row: ours, and theirs with each number of workers, in turn."""
    source = real_data()
    if source is None:
        print("  not measured: HumanEval's answers are missing (PLUMBLINE_REAL_DATA)")
        return
    problems = source / "HumanEval.jsonl.gz"
    answers = humaneval_answers(_PROBLEMS)
    data = import_dataset("humaneval", str(problems), folder).path
    names = ["plumb judge --embedded", *(f"human-eval, {number} workers" for number in workers)]
    runs: list[list[Command]] = [[] for _ in names]
    for turn in range(count):
        for side in in_turn(turn, len(names)):
            here = folder / f"{turn}-{side}"
            here.mkdir()
            if side:
                done = _theirs(python, problems, answers, here, workers[side - 1])
            else:
                done = _ours(data, answers, here)
            runs[side].append(done)
    _print_rows(names, runs, len(answers))


def _ours(data: Path, answers: Sequence[Answer], folder: Path) -> Command:
    file, output = folder / "completions.jsonl", folder / "out"
    _write_lines(
        file,
        [{"problem_id": a.problem.problem_id, "completion": a.completion} for a in answers],
    )
    arguments = ["judge", "--data", str(data), "--completions", str(file), "--embedded"]
    arguments += ["--output", str(output), f"sandbox.timeout={_TIMEOUT}"]
    wall, cpu = _timed(plumb.command(*arguments), folder)
    verdicts = plumb.read_jsonl(output / "verdicts.jsonl")
    times = sorted(verdict["judged_at"] for verdict in verdicts)
    # From verdict to verdict: as many intervals as answers, but one.
    judging = (times[-1] - times[0]) * len(times) / (len(times) - 1)
    accepted = {verdict["problem_id"]: verdict["accepted"] for verdict in verdicts}
    return Command(wall, cpu, accepted, judging)


def _theirs(
    python: Path, problems: Path, answers: Sequence[Answer], folder: Path, workers: int
) -> Command:
    file = folder / "samples.jsonl"
    _write_lines(
        file,
        [{"task_id": a.problem.problem_id, "completion": _continuation(a)} for a in answers],
    )
    module = "human_eval.evaluate_functional_correctness"
    options = [f"--n_workers={workers}", f"--timeout={_TIMEOUT}", f"--problem_file={problems}"]
    wall, cpu = _timed([str(python), "-m", module, str(file), *options], folder)
    results = plumb.read_jsonl(folder / "samples.jsonl_results.jsonl")
    return Command(wall, cpu, {result["task_id"]: result["passed"] for result in results})


def _continuation(answer: Answer) -> str:
    tests = answer.problem.tests
    assert isinstance(tests, HumanEvalTests)
    found = extract(answer.completion, entry_point=tests.entry_point)
    if found.reason is ExtractionReason.BODY_ONLY:
        return found.code
    # A statement at the margin ends the prompt's function: a program of its own must not go on
    # as its body.
    return f"\npass\n{found.code}"


def _write_lines(file: Path, rows: Sequence[Mapping[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _timed(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run a command; return its wall and its CPU seconds, those of its children included."""
    before, began = _children_cpu(), time.monotonic()
    with (folder / "log").open("w") as log:
        subprocess.run(
            command, cwd=plumb.REPOSITORY, stdout=log, stderr=subprocess.STDOUT, check=True
        )
    return time.monotonic() - began, _children_cpu() - before


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _print_rows(names: Sequence[str], runs: Sequence[Sequence[Command]], answers: int) -> None:
    for name, commands in zip(names, runs, strict=True):
        walls, cpus = [one.wall for one in commands], [one.cpu for one in commands]
        print(f"  {name}: {spread(walls)} s, CPU {spread(cpus)} s")
    judging = [one.judging for one in runs[0] if one.judging]
    print(
        f"  judging part of ours: {spread(judging)} s, "
        f"{spread([answers / seconds for seconds in judging], 1)} answers/s"
    )
    for name, commands in zip(names[1:], runs[1:], strict=True):
        pairs = zip(runs[0], commands, strict=True)
        print(f"  ours / {name}: {spread([a.wall / b.wall for a, b in pairs])}")
    _print_differences(names, runs)


def _print_differences(names: Sequence[str], runs: Sequence[Sequence[Command]]) -> None:
    ours = runs[0][0].accepted
    print(f"  accepted: {sum(ours.values())} of {len(ours)}")
    for name, commands in zip(names[1:], runs[1:], strict=True):
        differing = [key for key, passed in commands[0].accepted.items() if ours[key] != passed]
        print(f"  differing verdicts, {name}: {', '.join(differing) or 'none'}")
