"""Problems of a run, for comparisons: digest, facts, and the method that judged their answers."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from functools import cache

from shared.analysis.runs import UNKNOWN_PROBLEM, ProblemNote, judges_answers
from shared.outlines import ProblemOutline
from shared.schemas import ProblemFacts, Verdict
from shared.statuses import JudgeMethod

# Data set and problem id.
ProblemKey = tuple[str, str]

_FACTS = ("difficulty", "tags", "num_tests", "prompt_length")
# A run tells what it knows of a problem in parts; a part that is not known replaces none that is.
_UPSERT = f"""
INSERT INTO problems (run_id, dataset, problem_id, digest, {", ".join(_FACTS)}, method, checker)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, dataset, problem_id) DO UPDATE SET
  digest = CASE excluded.digest WHEN '' THEN digest ELSE excluded.digest END,
  {
    ", ".join(
        f"{name} = iif(excluded.prompt_length IS NULL, {name}, excluded.{name})" for name in _FACTS
    )
},
  method = ifnull(method, excluded.method), checker = ifnull(checker, excluded.checker)
"""


def write_problems(
    connection: sqlite3.Connection, run_id: int, notes: Mapping[ProblemKey, ProblemNote]
) -> None:
    """Add what is known of a run's problems."""
    connection.executemany(
        _UPSERT, ((run_id, *problem, *_values(note)) for problem, note in notes.items())
    )


def read_problems(connection: sqlite3.Connection, run_id: int) -> dict[str, dict[str, ProblemNote]]:
    """What is known of a run's problems, by data set and problem id."""
    methods = {str(method): method for method in JudgeMethod}
    cursor = connection.cursor()
    cursor.row_factory = None
    facts_of = cache(_facts)  # few are different
    found: dict[str, dict[str, ProblemNote]] = {}
    for (
        dataset,
        problem_id,
        digest,
        difficulty,
        tags,
        tests,
        length,
        method,
        checker,
    ) in cursor.execute(
        f"SELECT dataset, problem_id, digest, {', '.join(_FACTS)}, method, checker "
        "FROM problems WHERE run_id = ?",
        (run_id,),
    ):
        facts = facts_of(difficulty, tags, tests, length)
        note = ProblemNote(digest, facts, methods.get(method), checker)
        found.setdefault(dataset, {})[problem_id] = note
    return found


def outline_notes(outlines: Iterable[ProblemOutline]) -> dict[ProblemKey, ProblemNote]:
    """What ``problems.jsonl`` tells."""
    return {(one.dataset, one.problem_id): ProblemNote(one.digest, one.facts) for one in outlines}


def verdict_notes(
    verdicts: Iterable[Verdict],
    facts: Mapping[ProblemKey, ProblemFacts] | None = None,
    digests: Mapping[ProblemKey, str] | None = None,
) -> dict[ProblemKey, ProblemNote]:
    """What verdicts tell, with facts and digests of their problems as far as they are known."""
    found: dict[ProblemKey, ProblemNote] = {}
    for verdict in verdicts:
        problem = (verdict.dataset, verdict.problem_id)
        judging = judges_answers(verdict.method)
        if found.get(problem, UNKNOWN_PROBLEM).method is None:
            found[problem] = ProblemNote(
                digest=(digests or {}).get(problem, ""),
                facts=(facts or {}).get(problem, UNKNOWN_PROBLEM.facts),
                method=verdict.method if judging else None,
                checker=verdict.checker if judging else None,
            )
    return found


def _facts(difficulty: str, tags: str, tests: int | None, length: int | None) -> ProblemFacts:
    return ProblemFacts(difficulty, tuple(json.loads(tags)), tests, length)


def _values(note: ProblemNote) -> tuple[object, ...]:
    facts = note.facts
    tags = json.dumps(facts.tags)
    return (
        *(note.digest, facts.difficulty, tags, facts.num_tests, facts.prompt_length),
        *(note.method and str(note.method), note.checker),
    )
