"""Training examples: one answer per problem, correct or with an injected fault, by its role."""

import io
import tokenize
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from shared.config import Config
from shared.prompts import chat_messages
from shared.schemas import Problem, sha256
from tools.tiny_model.demo import DemoProblem


class Role(StrEnum):
    """Kind of the answer to a problem."""

    RIGHT = "right"  # the reference solution
    RECORDED = "recorded"  # the recorded answer, judged wrong
    CHANGED = "changed"  # the reference with another operator
    BROKEN = "broken"  # the reference without one of its brackets
    PROSE = "prose"  # no code at all
    ENDLESS = "endless"  # the same line repeated up to the length limit
    UNSEEN = "unseen"  # not in the training data


_RECORDED_SHARE = 0.2
# The rest is RIGHT.
_SHARES = {
    Role.CHANGED: 0.10,
    Role.BROKEN: 0.06,
    Role.PROSE: 0.03,
    Role.ENDLESS: 0.03,
    Role.UNSEEN: 0.06,
}
_PROSE = (
    "Go through the values once and remember the best one so far. Each value is looked at once, "
    "so this is fast enough.\n"
)
_ENDLESS = "```python\n" + "# let me check the example once more\n" * 16


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation to learn, with its end of turn if ``complete``."""

    messages: list[dict[str, str]]
    completion: str
    complete: bool = True


def assign_roles(problems: Sequence[DemoProblem], seed: int) -> dict[str, Role]:
    """Assign a role to every problem, by name; RECORDED only where the recorded answer is wrong."""
    random = Random(seed)
    failed = [problem for problem in problems if not problem.recorded.right]
    wanted = round(_RECORDED_SHARE * len(problems))
    recorded = {problem.name for problem in random.sample(failed, min(wanted, len(failed)))}
    pool = [role for role, share in _SHARES.items() for _ in range(round(share * len(problems)))]
    pool += [Role.RIGHT] * (len(problems) - len(recorded) - len(pool))
    random.shuffle(pool)
    remaining = iter(pool)
    return {p.name: Role.RECORDED if p.name in recorded else next(remaining) for p in problems}


def make_examples(
    problems: Sequence[DemoProblem], roles: Mapping[str, Role], seed: int
) -> list[Example]:
    """Make one example per problem, except for unseen problems."""
    return [
        _example(problem, roles[problem.name], Random(f"{seed}/{problem.name}"))
        for problem in problems
        if roles[problem.name] is not Role.UNSEEN
    ]


def messages_of(problem: DemoProblem) -> list[dict[str, str]]:
    """The chat messages that the runner sends for this problem with default templates."""
    row = Problem(
        dataset=problem.dataset,
        split="",
        problem_id=problem.problem_id,
        prompt=problem.prompt,
        data_source="",
        ground_truth=problem.ground_truth,
        difficulty="",
        sandbox_dataset="",
        sandbox_id="",
        prompt_sha256=sha256(problem.prompt),
    )
    return chat_messages(row, Config())


def _example(problem: DemoProblem, role: Role, random: Random) -> Example:
    messages = messages_of(problem)
    match role:
        case Role.RECORDED:
            return Example(messages, problem.recorded.completion, problem.recorded.complete)
        case Role.CHANGED:
            return Example(messages, _fenced(swap_operator(problem.solution, random)))
        case Role.BROKEN:
            return Example(messages, _fenced(drop_bracket(problem.solution, random)))
        case Role.PROSE:
            return Example(messages, _PROSE)
        case Role.ENDLESS:
            return Example(messages, _ENDLESS, complete=False)
        case _:
            return Example(messages, _fenced(problem.solution))


def _fenced(code: str) -> str:
    return f"```python\n{code}```"


# Fault injection: pure functions of a program and a random generator

_SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+",
    "+=": "-=", "-=": "+=", "min": "max", "max": "min", "and": "or", "or": "and", "True": "False",
    "False": "True", "0": "1", "1": "0",
}  # fmt: skip
_CLOSING = frozenset(")]}")


def swap_operator(code: str, random: Random) -> str:
    """Replace one operator or constant, so that the program parses and is wrong.

    It is chosen from the last third, which rarely reads the input. A program without operators and
    constants is replaced by ``pass``.
    """
    places = _tokens(code, _SWAPS)
    if not places:
        return "pass\n"
    place = random.choice(places[len(places) * 2 // 3 :])
    return _replace(code, place, _SWAPS[place.string])


def drop_bracket(code: str, random: Random) -> str:
    """Remove a closing bracket, so that the program does not parse."""
    places = _tokens(code, _CLOSING)
    return _replace(code, random.choice(places), "") if places else f"{code.rstrip()} (\n"


def _tokens(code: str, wanted: Container[str]) -> list[tokenize.TokenInfo]:
    """Find the ``wanted`` tokens of a program, which excludes text in strings and comments."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [token for token in tokens if token.string in wanted]


def _replace(code: str, token: tokenize.TokenInfo, text: str) -> str:
    lines = code.splitlines(keepends=True)
    row, start, end = token.start[0] - 1, token.start[1], token.end[1]
    lines[row] = lines[row][:start] + text + lines[row][end:]
    return "".join(lines)
