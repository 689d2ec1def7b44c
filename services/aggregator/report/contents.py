"""Data of a report as JSON, which replaces the API for the scripts of the page.

``{"run", "performance", "notes", "columns", "failures", "problems", "samples"}``: the first two are
responses of the API, ``failures`` pairs of id and signature. ``problems`` and ``samples`` are lists
by data set, in the order of the API. A problem has id, difficulty, tags, quality and, if one of its
samples has texts, what was asked. A sample has the values of ``columns``, and its texts or null.
"""

import json
import sqlite3
from dataclasses import dataclass, replace

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from services.aggregator.api.runs import RunDetail, extracted
from services.aggregator.folders.load import (
    LeftOutError,
    add_run,
    load_samples,
    progress,
    run_facts,
)
from services.aggregator.index.database import Database
from services.aggregator.index.overview import IndexedRun, all_figures, find_run
from services.aggregator.index.performance import performance
from services.aggregator.index.records import Record, read_sample
from services.aggregator.index.writer import IndexWriter
from services.aggregator.marks import SampleMarks
from services.aggregator.qa_logs import shorten_case
from shared.errors import OutputError, PlumblineError
from shared.finished_run import FinishedRun
from shared.json_lines import TornLineError
from shared.ledger.packing import unpack
from shared.outlines import ProblemOutline
from shared.schemas import SampleId, describe, sha256, without_surrogates
from shared.text import shorten_middle

COLUMNS = (
    *("problem_id", "sample_index", "final_status", "detail", "accepted", "pass_ratio"),
    *("cases_passed", "cases_total", "cases_not_run", "output_tokens", "gen_time"),
    *("total_judge_time", "attempts", "judged_at", "flipped", "finish_reason", "extraction"),
    *("cpu_time", "peak_memory", "prompt_length", "failure_id"),
)
_ROWS = (
    f"SELECT dataset, {', '.join(COLUMNS)} FROM samples ORDER BY dataset, problem_id, sample_index"
)
_OUTLINES = (
    "SELECT dataset, problem_id, outline FROM problems WHERE outline IS NOT NULL "
    "ORDER BY dataset, problem_id"
)
# Signatures of failures, the most frequent ones: each may be that of one sample alone.
_SIGNATURES = (
    "SELECT failure_id, failure FROM samples WHERE failure_id IS NOT NULL "
    "GROUP BY failure_id ORDER BY count(*) DESC, failure_id LIMIT 2000"
)
# Round robin over data sets and statuses, so that all samples of rare statuses are shown.
_ROUND_ROBIN = """
SELECT dataset, problem_id, sample_index FROM (
  SELECT *, row_number() OVER (
    PARTITION BY dataset, final_status ORDER BY draw(dataset, problem_id, sample_index)
  ) AS turn FROM samples
) ORDER BY turn, dataset, final_status LIMIT ?
"""
# Fields of a verdict that the page does not show; there may be thousands of case codes.
_NOT_SHOWN = {"case_codes", "worker", "code"}
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}

ProblemKey = tuple[str, str]


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

    rows: int = 50_000
    text_bytes: int = 16 * 2**20
    characters: int = 20_000
    highlighted: int = 40


class Contents:
    """Data of one finished run for embedding into a page."""

    def __init__(self, run: FinishedRun, database: Database, bounds: Bounds) -> None:
        """Read the run's folder into an empty index and choose the samples.

        Raises:
            OutputError: A file of the run is invalid.
        """
        self._run, self._database, self._bounds = run, database, bounds
        name = load_index(run, database)
        with database.read() as connection:
            indexed = find_run(connection, name)
            assert indexed is not None
            self._outlines = _outlines(connection)
            self._listed = self._choose(connection)
            self._asked: dict[ProblemKey, object] = {}
            self._texts = self._within_bounds(connection, indexed)
            self.notes = self._notes(indexed.verdicts)
            self.json = compact(self._document(connection, indexed))

    def _choose(self, connection: sqlite3.Connection) -> list[SampleId]:
        """The samples to list, in a random but reproducible order (hash of seed and sample)."""
        seed = self._run.record.seed
        connection.create_function(
            "draw",
            3,
            lambda *sample: sha256(f"{seed}\n{SampleId(*sample).key}"),
            deterministic=True,
        )
        rows = connection.execute(_ROUND_ROBIN, (self._bounds.rows,))
        return [SampleId(*row) for row in rows]

    def _within_bounds(
        self, connection: sqlite3.Connection, run: IndexedRun
    ) -> dict[SampleId, dict[str, object]]:
        """Texts of the first samples that fit; ``_asked`` gets what was asked in their problems."""
        texts: dict[SampleId, dict[str, object]] = {}
        left = self._bounds.text_bytes
        for sample in self._listed:
            record = read_sample(connection, run.id, sample)
            assert record is not None
            shown, problem = self._shown(record, len(texts)), (sample.dataset, sample.problem_id)
            outline = None if problem in self._asked else self._outlines.get(problem)
            asked = outline and _asked(outline, self._bounds)
            left -= len(compact([shown, asked]).encode())
            if left < 0:
                break
            texts[sample] = shown
            if asked is not None:
                self._asked[problem] = asked
        return texts

    def _shown(self, record: Record, place: int) -> dict[str, object]:
        """Completion, judged code and verdict of a sample as the page gets them; shortened."""
        most, verdict, generation = self._bounds.characters, record.verdict, record.generation
        code, case = extracted(generation, verdict), verdict.first_failed_case
        verdict = verdict.model_copy(
            update={"first_failed_case": case and shorten_case(case, most)}
        )
        if generation:
            completion = shorten_middle(generation.completion, most)
            generation = generation.model_copy(update={"completion": completion})
        code = code and replace(code, text=shorten_middle(code.text, most))
        language = self._run.record.config.judge.for_dataset(verdict.dataset).language
        marks = SampleMarks.of(
            generation.completion if generation else "",
            code.text if code else "",
            verdict.first_failed_case,
            language if place < self._bounds.highlighted else None,
        )
        return {
            "generation": generation and generation.model_dump(mode="json"),
            "code": to_jsonable_python(code),
            "verdict": verdict.model_dump(mode="json", exclude=_NOT_SHOWN),
            "marks": to_jsonable_python(marks),
        }

    def _document(self, connection: sqlite3.Connection, run: IndexedRun) -> dict[str, object]:
        try:
            detail = RunDetail.of(connection, run, all_figures(connection, run))
        except ValidationError as error:
            raise OutputError(f"{self._run.folder.url}: {describe(error)}") from None
        listed = {*self._listed}
        problems: dict[str, list[object]] = {}
        for problem in {(one.dataset, one.problem_id): None for one in sorted(listed)}:
            if one := self._outlines.get(problem):
                asked = [self._asked[problem]] if problem in self._asked else []
                values = [one.problem_id, one.difficulty, one.tags, one.quality, *asked]
                problems.setdefault(one.dataset, []).append(values)
        samples: dict[str, list[object]] = {}
        for dataset, *values in connection.execute(_ROWS):
            if (sample := SampleId(dataset, values[0], values[1])) in listed:
                samples.setdefault(dataset, []).append([*values, self._texts.get(sample)])
        return {
            "run": to_jsonable_python(detail),
            "performance": to_jsonable_python(performance(connection, run)),
            "notes": self.notes,
            "columns": COLUMNS,
            "failures": [tuple(row) for row in connection.execute(_SIGNATURES)],
            "problems": problems,
            "samples": samples,
        }

    def _notes(self, samples: int) -> list[str]:
        """List notes for the reader about data that the page omits."""
        notes = []
        listed, with_texts = len(self._listed), len(self._texts)
        if listed < samples:
            notes.append(
                f"{listed} of {samples} samples are listed; the figures cover all of them."
            )
        if with_texts < samples:
            notes.append(
                f"Prompt, completion and failed case are included for {with_texts} samples, taken "
                "in turn from each data set and status; generations.jsonl and verdicts.jsonl have "
                "all."
            )
        if samples and not self._outlines:
            notes.append(
                "The run's folder has no problems.jsonl, so prompts, difficulty and tags are "
                "missing."
            )
        if self._bounds.highlighted < with_texts:
            notes.append(f"Syntax is highlighted for {self._bounds.highlighted} samples.")
        return [*notes, *(f"Left out: {line}" for line in dict.fromkeys(self._run.skipped))]


def compact(value: object) -> str:
    """Encode JSON that is safe in a script element: no ``<``, ``>``, ``&`` or line separators."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise OutputError(f"the report cannot be written: {error}") from None
    return without_surrogates(text).translate(_ESCAPES)


def load_index(run: FinishedRun, database: Database) -> str:
    """Load a run from its folder into the index; return the run's id.

    Raises:
        OutputError: A line, other than a torn last one, is invalid.
    """
    name, writer = run.record.run, IndexWriter(database, searched=False)

    def report(error: PlumblineError) -> None:
        if isinstance(error, TornLineError):
            run.skipped.append(str(error))
        elif not isinstance(error, LeftOutError):
            raise OutputError(str(error))

    add_run(writer, run, name, None)
    indexed = writer.runs()[name]
    writer.set_facts(indexed, progress(run.record, name), run_facts(run, report))
    load_samples(run, writer, indexed, report)
    return name


def _outlines(connection: sqlite3.Connection) -> dict[ProblemKey, ProblemOutline]:
    return {
        (dataset, problem_id): ProblemOutline.model_validate_json(unpack(packed))
        for dataset, problem_id, packed in connection.execute(_OUTLINES)
    }


def _asked(outline: ProblemOutline, bounds: Bounds) -> object:
    """Role and text of each message, or the prompt where they are unknown; shortened."""
    texts = [shorten_middle(text, bounds.characters) for text in outline.texts]
    if not outline.messages:
        return texts[0]
    return [[one.role, text] for one, text in zip(outline.messages, texts, strict=True)]
