"""Full-text search: which samples have a text in prompt, completion or standard error.

Texts are indexed by their trigrams (SQLite's FTS5), with positions, so a search reads no text and
finds substrings of any kind. It ignores the case of ASCII letters. Behind each text stand its
characters, each between two marks: so one character is a search for three. A text of two
characters is a search for all indexed trigrams that begin with it.
"""

import sqlite3
import string
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from shared.schemas import Generation, Verdict, without_surrogates
from shared.text import shorten_middle

Place = Literal["prompt", "completion", "stderr"]
PLACES: tuple[Place, ...] = ("prompt", "completion", "stderr")
# Characters of a text that can be found: of a longer one its first and its last half of these.
SEARCHED = 8000

_GRAM = 3
_MARK = "\x02"
# The tokenizer ends at a NUL; the mark is ours. Both are indexed, and searched, as U+FFFD.
_CLEAN = str.maketrans(
    f"{string.ascii_uppercase}\0{_MARK}", f"{string.ascii_lowercase}\ufffd\ufffd"
)
_INDEX = "INSERT INTO sample_search (rowid, completion, stderr) VALUES (?, ?, ?)"
_LEVEL = 1  # of zlib; stored texts are read only to remove them from the index

TABLES = """
-- Kept for the search index alone, which has no content and needs a text to forget it.
CREATE TABLE texts (id INTEGER PRIMARY KEY, completion BLOB NOT NULL, stderr BLOB NOT NULL);
CREATE VIRTUAL TABLE sample_search USING fts5(
  completion, stderr, content='', tokenize='trigram case_sensitive 1'
);
CREATE VIRTUAL TABLE sample_grams USING fts5vocab(sample_search, 'row');

CREATE TABLE prompts (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id INTEGER NOT NULL,
  dataset TEXT NOT NULL,
  problem_id TEXT NOT NULL,
  prompt BLOB NOT NULL,
  UNIQUE (run_id, dataset, problem_id)
);
CREATE VIRTUAL TABLE prompt_search USING fts5(
  prompt, content='', tokenize='trigram case_sensitive 1'
);
CREATE VIRTUAL TABLE prompt_grams USING fts5vocab(prompt_search, 'row');
"""


@dataclass(frozen=True, slots=True)
class SampleTexts:
    """Texts of a sample other than its prompt."""

    completion: str = ""
    stderr: str = ""

    @classmethod
    def of(cls, verdict: Verdict, generation: Generation | None) -> Self:
        case = verdict.first_failed_case
        return cls(generation.completion if generation else "", (case and case.stderr) or "")


def searchable(text: str) -> str:
    """The part of a text that is searched: in lower case (ASCII), its middle left out if long."""
    return _clean(shorten_middle(text, SEARCHED))


def put_prompt(
    connection: sqlite3.Connection, run_id: int, problem: tuple[str, str], prompt: str
) -> None:
    """Store and index the prompt of a problem (data set, id), in place of an earlier one."""
    packed = _packed(prompt)
    key = (run_id, *problem)
    found = connection.execute(
        "SELECT id, prompt FROM prompts WHERE run_id = ? AND dataset = ? AND problem_id = ?", key
    ).fetchone()
    if found is not None:
        if found["prompt"] == packed:
            return
        _forget_prompts(connection, [found])
        connection.execute("UPDATE prompts SET prompt = ? WHERE id = ?", (packed, found["id"]))
        number = found["id"]
    else:
        number = connection.execute(
            "INSERT INTO prompts (run_id, dataset, problem_id, prompt) VALUES (?, ?, ?, ?)",
            (*key, packed),
        ).lastrowid
    connection.execute(
        "INSERT INTO prompt_search (rowid, prompt) VALUES (?, ?)", (number, _unpacked(packed))
    )


def put_texts(connection: sqlite3.Connection, sample: int, texts: SampleTexts) -> None:
    """Store and index the texts of a sample (its ``samples.id``), in place of earlier ones."""
    packed = _packed(texts.completion), _packed(texts.stderr)
    found = connection.execute(
        "SELECT id, completion, stderr FROM texts WHERE id = ?", (sample,)
    ).fetchone()
    if found is not None:
        if tuple(found)[1:] == packed:
            return
        _forget_texts(connection, [found])
    connection.execute("INSERT INTO texts VALUES (?, ?, ?)", (sample, *packed))
    connection.execute(_INDEX, (sample, *map(_unpacked, packed)))


def add_texts(connection: sqlite3.Connection, samples: Iterable[tuple[int, SampleTexts]]) -> None:
    """Store and index the texts of samples (by ``samples.id``) that have none yet."""
    kept, indexed = [], []
    for sample, texts in samples:
        parts = searchable(texts.completion), searchable(texts.stderr)
        kept.append((sample, *map(_compressed, parts)))
        indexed.append((sample, *map(_indexed, parts)))
    connection.executemany("INSERT INTO texts VALUES (?, ?, ?)", kept)
    connection.executemany(_INDEX, indexed)


def remove_texts(connection: sqlite3.Connection, samples: Iterable[int]) -> None:
    for sample in samples:
        found = connection.execute(
            "SELECT id, completion, stderr FROM texts WHERE id = ?", (sample,)
        ).fetchall()
        _forget_texts(connection, found)


def remove_prompts(connection: sqlite3.Connection, run_id: int, limit: int) -> bool:
    """Remove up to ``limit`` prompts of a run; return whether there were any."""
    found = connection.execute(
        "SELECT id, prompt FROM prompts WHERE run_id = ? LIMIT ?", (run_id, limit)
    ).fetchall()
    _forget_prompts(connection, found)
    connection.executemany("DELETE FROM prompts WHERE id = ?", [(row["id"],) for row in found])
    return bool(found)


def condition(
    connection: sqlite3.Connection, run_id: int, text: str, places: Iterable[Place]
) -> tuple[str, list[str | int]]:
    """An expression over ``samples`` that is true where one of the places has the text.

    Returns:
        The expression and its values.
    """
    wanted, places = _clean(text), set(places)
    parts, values = [], []
    if columns := " ".join(name for name in PLACES[1:] if name in places):
        query = _query(connection, "sample_grams", wanted)
        first, last = connection.execute(
            "SELECT min(id), max(id) FROM samples WHERE run_id = ?", (run_id,)
        ).fetchone()
        parts.append(
            "id IN (SELECT rowid FROM sample_search WHERE sample_search MATCH ? "
            "AND rowid BETWEEN ? AND ?)"
        )
        values += [f"{{{columns}}} : ({query})", first or 0, last or 0]
    if "prompt" in places:
        parts.append(
            "prompt IN (SELECT id FROM prompts WHERE run_id = ? AND id IN "
            "(SELECT rowid FROM prompt_search WHERE prompt_search MATCH ?))"
        )
        values += [run_id, _query(connection, "prompt_grams", wanted)]
    return f"({' OR '.join(parts)})", values


def _query(connection: sqlite3.Connection, grams: str, text: str) -> str:
    """The text as a query of FTS5, in which only a quoted string has no operators."""
    if len(text) >= _GRAM:
        return _quoted(text)
    if len(text) == 1:
        return _quoted(f"{_MARK}{text}{_MARK}")
    found = connection.execute(
        f"SELECT term FROM {grams} WHERE term >= ? AND term < ?", (text, f"{text}\U0010ffff")
    )
    begun = [term for (term,) in found]
    # The end of a text is followed by a mark, so the query is never empty in vain.
    return " OR ".join(map(_quoted, begun or [f"{text}{_MARK}"]))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _clean(text: str) -> str:
    return without_surrogates(text).translate(_CLEAN)


def _packed(text: str) -> bytes:
    return _compressed(searchable(text))


def _compressed(text: str) -> bytes:
    return zlib.compress(text.encode(), _LEVEL)


def _unpacked(packed: bytes) -> str:
    """The indexed form of a stored text."""
    return _indexed(zlib.decompress(packed).decode())


def _indexed(text: str) -> str:
    """The text, and behind it its characters between marks."""
    return f"{text}{_MARK}{_MARK}{_MARK.join(sorted(set(text)))}{_MARK}" if text else ""


def _forget_texts(connection: sqlite3.Connection, rows: Iterable[sqlite3.Row]) -> None:
    for row in rows:
        connection.execute(
            "INSERT INTO sample_search (sample_search, rowid, completion, stderr) "
            "VALUES ('delete', ?, ?, ?)",
            (row["id"], _unpacked(row["completion"]), _unpacked(row["stderr"])),
        )
        connection.execute("DELETE FROM texts WHERE id = ?", (row["id"],))


def _forget_prompts(connection: sqlite3.Connection, rows: Iterable[sqlite3.Row]) -> None:
    connection.executemany(
        "INSERT INTO prompt_search (prompt_search, rowid, prompt) VALUES ('delete', ?, ?)",
        [(row["id"], _unpacked(row["prompt"])) for row in rows],
    )
