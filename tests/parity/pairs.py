"""A thousand pairs of problem and completion with every outcome, made of the demo's and verl's."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared.datasets import read_datasets
from shared.schemas import Problem
from tests.e2e.reward import stdio_problem
from tests.parity.cases import answers

DEMO = Path(__file__).parents[2] / "demo"
SEED = 20


@dataclass(frozen=True, slots=True)
class Pair:
    """A problem, one of its completions, and the number of the completion."""

    problem: Problem
    completion: str
    index: int = 0


def pairs(count: int) -> list[Pair]:
    """The recorded answers, those of the tests against verl, then as many others as asked for.

    The others are answers to other problems of the same kind, and answers that were cut, wrapped or
    broken; the same in every process.
    """
    problems = {problem.problem_id: problem for problem in read_datasets([str(DEMO / "data")])}
    lines = (DEMO / "completions.jsonl").read_text().splitlines()
    recorded = [(problems[row["problem_id"]], row["completion"]) for row in map(json.loads, lines)]
    shared = [*recorded, *_against_verl()]
    shared += _others(recorded, count - len(shared))
    indices: dict[tuple[str, str], int] = {}
    chosen = []
    for problem, completion in shared[:count]:
        key = problem.dataset, problem.problem_id
        indices[key] = indices.get(key, -1) + 1
        chosen.append(Pair(problem, completion, indices[key]))
    return chosen


def _against_verl() -> Iterator[tuple[Problem, str]]:
    for answer in answers():
        if not answer.name.startswith("time-"):  # each takes its time limit; the demo has some
            yield stdio_problem(answer.name, answer.tests, "parity"), answer.completion


def _others(recorded: list[tuple[Problem, str]], count: int) -> Iterator[tuple[Problem, str]]:
    chance = random.Random(SEED)
    quick = [pair for pair in recorded if "while True" not in pair[1]]
    seen = {(problem.problem_id, completion) for problem, completion in recorded}
    while count > 0:
        problem, own = chance.choice(recorded)
        other = [quick_pair for quick_pair in quick if quick_pair[0].dataset == problem.dataset]
        completion = _changed(chance, own, chance.choice(other)[1])
        if (problem.problem_id, completion) not in seen and "while True" not in completion:
            seen.add((problem.problem_id, completion))
            count -= 1
            yield problem, completion


def _changed(chance: random.Random, own: str, other: str) -> str:
    """An answer made of one to the problem and one to another problem."""
    kind = chance.randrange(10)
    place = chance.randrange(1, max(2, len(own)))
    if kind == 0:
        return own[:place]
    if kind == 1:
        return own.replace("```python\n", "```python\nimport os\nos._exit(0)\n")
    if kind == 2:
        return own.replace("\n```\n", f"\nraise ValueError({place})\n```\n")
    if kind == 3:
        return f"{own}\n\nOr, shorter:\n\n{other}"
    if kind == 4:
        return f"{other}\n\nNo, this is right:\n\n{own}"
    if kind == 5:
        return own.replace("```", "")
    if kind == 6:
        return own[:place] + chance.choice(["(", "\x00", "é", "\n", "0", " ", "🙂"]) + own[place:]
    if kind == 7:
        return own.replace("+", "-").replace("<", ">")
    if kind == 8:
        return f"<think>\n{other}\n</think>\n{own}"
    return other + "\n" * chance.randrange(40)
