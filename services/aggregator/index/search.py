"""Full-text search: which samples have a text in prompt, completion or standard error.

Texts are indexed by their trigrams (SQLite's FTS5), so a search reads no other text and finds
substrings of any kind, of three characters or more. It ignores the case of ASCII letters.
"""

import sqlite3
import string
from collections.abc import Iterable
from typing import Literal

from shared.schemas import Generation, Verdict, without_surrogates
from shared.text import shorten_middle

Place = Literal["prompt", "completion", "stderr"]
PLACES: tuple[Place, ...] = ("prompt", "completion", "stderr")
# Characters of a text that can be found: of a longer one its first and its last half of these.
SEARCHED = 8000
SHORTEST = 3
"""Characters of a text that can be searched for."""

# The tokenizer ends at a NUL, which is indexed, and searched, as U+FFFD.
_CLEAN = str.maketrans(f"{string.ascii_uppercase}\0", f"{string.ascii_lowercase}\ufffd")

TABLES = """
CREATE VIRTUAL TABLE sample_search USING fts5(
  completion, stderr, tokenize='trigram case_sensitive 1'
);
CREATE VIRTUAL TABLE prompt_search USING fts5(prompt, tokenize='trigram case_sensitive 1');
"""


def sample_texts(verdict: Verdict, generation: Generation | None) -> tuple[str, str]:
    """Completion and standard error of a sample."""
    case = verdict.first_failed_case
    return generation.completion if generation else "", (case and case.stderr) or ""


def searchable(text: str) -> str:
    """The part of a text that is searched: in lower case (ASCII), its middle left out if long."""
    return _clean(shorten_middle(text, SEARCHED))


def put_prompt(connection: sqlite3.Connection, problem: int, prompt: str) -> None:
    """Index the prompt of a problem (its ``problems.id``), in place of an earlier one."""
    connection.execute(
        "INSERT OR REPLACE INTO prompt_search (rowid, prompt) VALUES (?, ?)",
        (problem, searchable(prompt)),
    )


def put_texts(connection: sqlite3.Connection, sample: int, texts: tuple[str, str]) -> None:
    """Index completion and standard error of a sample (its ``samples.id``), in place of others."""
    connection.execute(
        "INSERT OR REPLACE INTO sample_search (rowid, completion, stderr) VALUES (?, ?, ?)",
        (sample, *map(searchable, texts)),
    )


def condition(run_id: int, text: str, places: Iterable[str | None]) -> tuple[str, list[str | int]]:
    """An expression over ``samples`` that is true where one of the places has the text.

    Returns:
        The expression and its values.
    """
    # As a string, in which FTS5 knows no operators.
    sought, places = '"' + _clean(text).replace('"', '""') + '"', set(places)
    parts: list[str] = []
    values: list[str | int] = []
    if columns := " ".join(name for name in PLACES[1:] if name in places):
        parts.append(
            "id IN (SELECT rowid FROM sample_search WHERE sample_search MATCH ? AND rowid BETWEEN "
            "(SELECT min(id) FROM samples WHERE run_id = ?) AND "
            "(SELECT max(id) FROM samples WHERE run_id = ?))"
        )
        values += [f"{{{columns}}} : ({sought})", run_id, run_id]
    if "prompt" in places:
        parts.append(
            "(dataset, problem_id) IN (SELECT dataset, problem_id FROM problems WHERE run_id = ? "
            "AND id IN (SELECT rowid FROM prompt_search WHERE prompt_search MATCH ?))"
        )
        values += [run_id, sought]
    return f"({' OR '.join(parts)})", values


def _clean(text: str) -> str:
    return without_surrogates(text).translate(_CLEAN)
