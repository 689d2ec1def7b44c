"""Problems to compare."""

import json
from pathlib import Path

from services.data.records import ProblemText
from shared.datasets import canonicalize
from shared.schemas import sha256

DEMO = Path(__file__).parents[3] / "demo" / "problems"
_VARIABLES = ["total", "low", "high", "step", "mark", "left", "right", "width", "pace", "rest"]


def problem(dataset, problem_id, prompt, *solutions):
    # Half a surrogate pair has no UTF-8; the importer refuses it, the comparison has to bear it.
    digest = sha256(canonicalize(prompt).encode("utf-8", "replace").decode())
    return ProblemText(dataset, problem_id, prompt, solutions, "test", digest)


def demo_problems():
    rows = [
        json.loads(line)
        for path in sorted(DEMO.glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    return [
        problem(row["dataset"], row["problem_id"], row["prompt"], row["reference_solution"])
        for row in rows
    ]


def program(random):
    """Some statements, never the same twice."""
    names = random.sample(_VARIABLES, 5)
    lines = [f"{name} = {random.randint(2, 99)}" for name in names]
    for _ in range(12):
        to, one, other = random.choices(names, k=3)
        sign = random.choice(["+", "-", "*", "//", "%", "^", "|", "&"])
        lines.append(f"{to} = {one} {sign} ({other} + {random.randint(2, 99)})")
    return "\n".join(lines)
