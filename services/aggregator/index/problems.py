"""Problems of a run: outline, digest and facts."""

import json
import sqlite3
from collections.abc import Iterable
from functools import cache

from services.aggregator.index.search import put_prompt
from shared.analysis.runs import ProblemNote
from shared.ledger.packing import pack, unpack
from shared.outlines import ProblemOutline
from shared.schemas import ProblemFacts

ProblemKey = tuple[str, str]
"""Data set and id of a problem."""

_FACTS = ("difficulty", "tags", "num_tests", "prompt_length")
_OF_PROBLEM = "WHERE run_id = ? AND dataset = ? AND problem_id = ?"
_OUTLINE = ("digest", *_FACTS, "outline")
_PUT_OUTLINE = (
    f"INSERT INTO problems (run_id, dataset, problem_id, {', '.join(_OUTLINE)}) "
    f"VALUES (?, ?, ?, {', '.join('?' for _ in _OUTLINE)}) ON CONFLICT DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in _OUTLINE)} RETURNING id"
)


def put_outlines(
    connection: sqlite3.Connection,
    run_id: int,
    outlines: Iterable[ProblemOutline],
    *,
    searched: bool,
) -> None:
    for one in outlines:
        facts = one.facts
        values = (one.digest, facts.difficulty, json.dumps(facts.tags), facts.num_tests,
                  facts.prompt_length, pack(one.model_dump_json()))  # fmt: skip
        row = connection.execute(_PUT_OUTLINE, (run_id, one.dataset, one.problem_id, *values))
        (number,) = row.fetchone()
        if searched:
            put_prompt(connection, number, "\n".join(one.texts))


def read_outline(
    connection: sqlite3.Connection, run_id: int, problem: ProblemKey
) -> ProblemOutline | None:
    row = connection.execute(
        f"SELECT outline FROM problems {_OF_PROBLEM}", (run_id, *problem)
    ).fetchone()
    if row is None or row[0] is None:
        return None
    return ProblemOutline.model_validate_json(unpack(row[0]))


def read_facts(
    connection: sqlite3.Connection, run_id: int, problems: Iterable[ProblemKey]
) -> dict[ProblemKey, ProblemFacts]:
    """Facts of the problems whose outline is known."""
    found = {}
    for problem in problems:
        row = connection.execute(
            f"SELECT {', '.join(_FACTS)} FROM problems {_OF_PROBLEM}",
            (run_id, *problem),
        ).fetchone()
        if row is not None:
            found[problem] = _facts(*row)
    return found


def read_problems(connection: sqlite3.Connection, run_id: int) -> dict[str, dict[str, ProblemNote]]:
    """What a comparison knows of a run's problems, by data set and problem id."""
    cursor = connection.cursor()
    cursor.row_factory = None
    facts_of = cache(_facts)  # few are different
    found: dict[str, dict[str, ProblemNote]] = {}
    for dataset, problem_id, digest, *facts in cursor.execute(
        f"SELECT dataset, problem_id, digest, {', '.join(_FACTS)} FROM problems WHERE run_id = ?",
        (run_id,),
    ):
        found.setdefault(dataset, {})[problem_id] = ProblemNote(digest, facts_of(*facts))
    return found


def _facts(difficulty: str, tags: str, tests: int | None, length: int | None) -> ProblemFacts:
    return ProblemFacts(difficulty, tuple(json.loads(tags)), tests, length)
