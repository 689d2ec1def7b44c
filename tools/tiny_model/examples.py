"""What the model learns: one answer a problem, right or with a fault, by a role dealt to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from services.runner.prompts import chat_messages
from shared.config import DataConfig
from shared.schemas import Problem, sha256
from tools.tiny_model.demo import DemoProblem
from tools.tiny_model.faults import drop_bracket, swap_operator


class Role(StrEnum):
    """What kind of answer a problem gets."""

    RIGHT = "right"  # the reference solution
    RECORDED = "recorded"  # the recorded answer, one that was judged to be wrong
    CHANGED = "changed"  # the reference with an operator changed
    BROKEN = "broken"  # the reference without one of its brackets
    PROSE = "prose"  # no code at all
    ENDLESS = "endless"  # the same line over and over, to the length limit
    UNSEEN = "unseen"  # left out of the training: whatever the model makes of it


_RECORDED_SHARE = 0.2
# The others are RIGHT.
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
    """A conversation to learn; with ``complete`` also that the answer ends there."""

    messages: list[dict[str, str]]
    completion: str
    complete: bool = True


def deal_roles(problems: Sequence[DemoProblem], seed: int) -> dict[str, Role]:
    """Give every problem its role, by name. RECORDED goes to wrong recorded answers alone."""
    random = Random(seed)
    failed = [problem for problem in problems if not problem.recorded.right]
    wanted = round(_RECORDED_SHARE * len(problems))
    recorded = {problem.name for problem in random.sample(failed, min(wanted, len(failed)))}
    deck = [role for role, share in _SHARES.items() for _ in range(round(share * len(problems)))]
    deck += [Role.RIGHT] * (len(problems) - len(recorded) - len(deck))
    random.shuffle(deck)
    cards = iter(deck)
    return {p.name: Role.RECORDED if p.name in recorded else next(cards) for p in problems}


def make_examples(
    problems: Sequence[DemoProblem], roles: Mapping[str, Role], seed: int
) -> list[Example]:
    """One example a problem, but for those that stay unseen."""
    return [
        _example(problem, roles[problem.name], Random(f"{seed}/{problem.name}"))
        for problem in problems
        if roles[problem.name] is not Role.UNSEEN
    ]


def messages_of(problem: DemoProblem) -> list[dict[str, str]]:
    """What the runner sends for this problem, without templates of a run's own."""
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
    return chat_messages(row, DataConfig())


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
