"""Data of a report as JSON, which replaces the API for the scripts of the page.

``{"run", "performance", "notes", "columns", "samples"}``: run and performance are responses of the
API. A sample has the values of ``columns``, and the API's response with its texts, or null.
"""

import json
import sqlite3
from dataclasses import dataclass, replace
from functools import partial

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from services.aggregator.api.runs import RunDetail, SampleDetail
from services.aggregator.folders.load import LeftOutError, load_samples, progress, run_facts
from services.aggregator.index.database import Database
from services.aggregator.index.overview import IndexedRun, all_figures, find_run
from services.aggregator.index.performance import performance
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.writer import IndexWriter, public_json
from shared.errors import OutputError, PlumblineError
from shared.finished_run import FinishedRun
from shared.json_lines import TornLineError
from shared.schemas import SampleId, describe, sha256, without_surrogates

_NOT_LISTED = {"completion_sha256", "confirmed", "replica", "worker", "finished_at", "stderr"}
COLUMNS = tuple(name for name in SampleRow.model_fields if name not in _NOT_LISTED)
# Round robin over data sets and statuses, so that all samples of rare statuses are shown.
_ROUND_ROBIN = f"""
SELECT {", ".join(SampleRow.model_fields)} FROM samples WHERE run_id = ?
ORDER BY row_number() OVER (
  PARTITION BY dataset, final_status ORDER BY draw(dataset, problem_id, sample_index)
), dataset, final_status LIMIT ?
"""
# Fields of a verdict that the page does not show; there may be thousands of case codes.
_NOT_SHOWN = ("case_codes", "worker", "code")
_ESCAPED = "<>&\u2028\u2029"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Size limits of a report: about 25 MB in all, which a browser opens in a second or two.

    Attributes:
        rows: Number of listed samples.
        text_bytes: Bytes of the samples' texts: prompts, completions, code, failed cases.
        characters: Characters of one text; the middle of a longer one is left out.
        highlighted: Number of samples whose texts have their syntax marked, which takes
            milliseconds for each.
    """

    rows: int = 20_000
    text_bytes: int = 16 * 2**20
    characters: int = 20_000
    highlighted: int = 40


def report_data(run: FinishedRun, database: Database, bounds: Bounds) -> tuple[str, list[str]]:
    """Choose the samples to show from an index that has all of the run's.

    Returns:
        The JSON, and notes for the reader about data that it omits.

    Raises:
        OutputError: A file of the run is invalid.
    """
    facts = run_facts(run, partial(_report, run))
    results = facts.pop("results", {})
    with database.read() as connection:
        indexed = find_run(connection, run.record.run)
        assert indexed is not None
        indexed = replace(indexed, state=run.record.state, stored_facts=public_json(facts))
        rows = _listed(connection, indexed, run.record.seed, bounds.rows)
        details = _details(connection, indexed, rows, bounds)
        notes = _notes(connection, run, indexed, len(rows), len(details), bounds)
        try:
            figures = all_figures(connection, indexed)
            detail = RunDetail.of(connection, indexed, figures, json.loads(public_json(results)))
        except ValidationError as error:
            raise OutputError(f"{run.folder.url}: {describe(error)}") from None
        document = {
            "run": to_jsonable_python(detail),
            "performance": to_jsonable_python(performance(connection, indexed)),
            "notes": notes,
            "columns": COLUMNS,
        }
    rows.sort(key=_sample)
    samples = ",".join(
        f"{compact([getattr(row, column) for column in COLUMNS])[:-1]},"
        f"{details.get(_sample(row), 'null')}]"
        for row in rows
    )
    return f'{compact(document)[:-1]},"samples":[{samples}]}}', notes


def _listed(
    connection: sqlite3.Connection, run: IndexedRun, seed: int, most: int
) -> list[SampleRow]:
    """The samples to list, in a random but reproducible order (hash of seed and sample)."""

    def draw(*sample: str) -> str:
        return sha256(f"{seed}\n{SampleId(sample[0], sample[1], int(sample[2])).key}")

    connection.create_function("draw", 3, draw, deterministic=True)
    rows = connection.execute(_ROUND_ROBIN, (run.id, most))
    return [SampleRow.model_validate(dict(row)) for row in rows]


def _sample(row: SampleRow) -> SampleId:
    return SampleId(row.dataset, row.problem_id, row.sample_index)


def _details(
    connection: sqlite3.Connection, run: IndexedRun, rows: list[SampleRow], bounds: Bounds
) -> dict[SampleId, str]:
    """The JSON of the first samples that fit, with their texts."""
    details: dict[SampleId, str] = {}
    left = bounds.text_bytes
    for row in rows:
        detail = SampleDetail.of(
            connection,
            run,
            _sample(row),
            most=bounds.characters,
            highlighted=len(details) < bounds.highlighted,
            answers=False,  # they are among the listed samples
        )
        document = to_jsonable_python(detail)
        for name in _NOT_SHOWN:
            del document["verdict"][name]
        text = compact(document)
        left -= len(text.encode())
        if left < 0:
            break
        details[_sample(row)] = text
    return details


def _notes(
    connection: sqlite3.Connection,
    run: FinishedRun,
    indexed: IndexedRun,
    listed: int,
    with_texts: int,
    bounds: Bounds,
) -> list[str]:
    notes, samples = [], indexed.verdicts
    if listed < samples:
        notes.append(f"{listed} of {samples} samples are listed; the figures cover all of them.")
    if with_texts < samples:
        notes.append(
            f"Prompt, completion and failed case are included for {with_texts} samples, taken in "
            "turn from each data set and status; generations.jsonl and verdicts.jsonl have all."
        )
    outlines = "SELECT count(outline) FROM problems WHERE run_id = ?"
    if samples and not connection.execute(outlines, (indexed.id,)).fetchone()[0]:
        notes.append(
            "The run's folder has no problems.jsonl, so prompts, difficulty and tags are missing."
        )
    if bounds.highlighted < with_texts:
        notes.append(f"Syntax is highlighted for {bounds.highlighted} samples.")
    return [*notes, *(f"Left out: {line}" for line in dict.fromkeys(run.skipped))]


def compact(value: object) -> str:
    """Encode JSON that is safe in a script element: no ``<``, ``>``, ``&`` or line separators."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise OutputError(f"the report cannot be written: {error}") from None
    text = without_surrogates(text)
    for sign in _ESCAPED:  # str.translate would take a sixth of a report's time
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def load_index(run: FinishedRun, database: Database) -> str:
    """Load a run from its folder into the index; return the run's id.

    Raises:
        OutputError: A line, other than a torn last one, is invalid.
    """
    name, writer, report = (
        run.record.run,
        IndexWriter(database, searched=False),
        partial(_report, run),
    )
    state = progress(run.record, name)
    indexed = writer.add_run(state, run.record.datasets)
    writer.set_facts(indexed, state, run_facts(run, report))
    load_samples(run, writer, indexed, report)
    return name


def _report(run: FinishedRun, error: PlumblineError) -> None:
    if isinstance(error, TornLineError):
        run.skipped.append(str(error))
    elif not isinstance(error, LeftOutError):
        raise OutputError(str(error))
