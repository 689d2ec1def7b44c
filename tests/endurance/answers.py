"""Completions whose scores are known: answers to the demo's problems, and hostile ones."""

import json
from dataclasses import dataclass

from shared.datasets import read_datasets
from shared.reference import reference_of
from tests.e2e.plumb import DEMO
from tests.hostile.answers import ANSWERS

# Those that cost little, and those that only some process namespaces bear.
_HOSTILE = (
    "daemon", "right only after the end", "parent killed", "group killed", "sleeps",
    "answer replaced", "ends early", "built-in functions replaced",
)  # fmt: skip
_INLINE = json.dumps({"inputs": ["2\n", "5\n"], "outputs": ["4\n", "10\n"]})
# Of what costs seconds, such as a time-out, which is confirmed with nothing beside it.
_RARE = 0.1


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion and its problem.

    ``label`` is a reference or inline tests; ``named`` data set and id of a known problem.
    ``allowed`` are the only right statuses, whichever of them comes. ``weight`` is how often it
    is drawn, against the others.
    """

    name: str
    completion: str
    label: str
    named: tuple[str, str] | None = None
    allowed: frozenset[str] = frozenset()
    weight: float = 1.0

    def text(self, number: int) -> str:
        """The completion as number so-and-so; no two numbers have the same text."""
        return f"Answer {number}.\n\n{self.completion}"


def answers() -> list[Answer]:
    """All answers, the demo's before the hostile ones."""
    chosen = _demo()
    for name in _HOSTILE:
        hostile = ANSWERS[name]
        completion = f"```python\n{hostile.code}\n```"
        allowed = frozenset(status.value for status in hostile.verdicts)
        chosen.append(Answer(f"hostile/{name}", completion, _INLINE, allowed=allowed, weight=_RARE))
    return chosen


def _demo() -> list[Answer]:
    references = {
        (problem.dataset, problem.problem_id): reference_of(problem).text
        for problem in read_datasets([str(DEMO / "data")])
    }
    demo = []
    for line in (DEMO / "completions.jsonl").read_text().splitlines():
        row = json.loads(line)
        named = row["dataset"], row["problem_id"]
        weight = _RARE if row["expected_status"] == "timeout" else 1.0
        demo.append(Answer(named[1], row["completion"], references[named], named, weight=weight))
    return demo
