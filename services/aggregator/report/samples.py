"""Selection of a report's samples: load a finished run into an index, select within bounds."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from services.aggregator.folders.load import (
    JudgedSample,
    LeftOutError,
    add_run,
    load_samples,
    progress,
    run_facts,
)
from services.aggregator.index.database import Database
from services.aggregator.index.writer import IndexWriter
from shared.errors import OutputError, PlumblineError
from shared.finished_run import FinishedRun
from shared.json_lines import TornLineError
from shared.outlines import ProblemOutline
from shared.schemas import FailedCase, SampleId, sha256

# Characters that take two or six bytes in JSON, or as a \u escape that is safe in HTML.
_TWO_BYTES = ('"', "\\", "\n", "\r", "\t")
_SIX_BYTES = ("<", ">", "&", "\u2028", "\u2029")
_SAMPLE_OVERHEAD = 800
_SIZES = """
CREATE TABLE sizes (
  dataset TEXT, problem_id TEXT, sample_index INTEGER, draw TEXT, bytes INTEGER,
  PRIMARY KEY (dataset, problem_id, sample_index)
) WITHOUT ROWID
"""
# Round robin over data sets and statuses, so that all samples of rare statuses are shown.
_ROUND_ROBIN = """
SELECT dataset, problem_id, sample_index, bytes FROM (
  SELECT *, row_number() OVER (PARTITION BY dataset, final_status ORDER BY draw) AS turn
  FROM samples JOIN sizes USING (dataset, problem_id, sample_index)
) ORDER BY turn, dataset, final_status
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Size limits of a report: about 25 MB in all, which a browser opens in a second or two, and
    8 MB more for a run that recorded cases.

    Attributes:
        rows: Number of listed samples.
        text_bytes: Bytes of the samples' texts: prompts, completions, code, failed cases.
        characters: Characters of one text; the middle of a longer one is left out.
        cases: Number of recorded cases of a sample.
        case_bytes: Bytes of all recorded cases.
        case_characters: As ``characters``, of a recorded case's text.
        highlighted: Number of samples whose texts have their syntax marked, which takes
            milliseconds for each.
    """

    rows: int = 50_000
    text_bytes: int = 16 * 2**20
    characters: int = 20_000
    cases: int = 50
    case_bytes: int = 8 * 2**20
    case_characters: int = 1000
    highlighted: int = 40

    def cost(self, text: str | None) -> int:
        """Return an upper bound of the bytes that a text takes in the page."""
        if text is None:
            return 0
        kept = text[: self.characters]
        extra = sum(map(kept.count, _TWO_BYTES)) + 5 * sum(map(kept.count, _SIX_BYTES))
        return len(kept.encode("utf-8", "replace")) + extra + 100

    def cost_of_sample(self, completion: str, *others: str | None) -> int:
        """Return an upper bound for a sample: its completion and its code, each with its marks."""
        return 4 * self.cost(completion) + sum(map(self.cost, others)) + _SAMPLE_OVERHEAD


@dataclass(frozen=True, slots=True)
class SampleSelection:
    """Selected samples: ``samples`` is the total, ``with_texts`` is a subset of ``listed``.

    ``with_texts`` has the place of each in the order in which they were chosen.
    """

    samples: int
    listed: set[SampleId]
    with_texts: dict[SampleId, int]


Problems = Mapping[tuple[str, str], int]
"""Bytes that what was asked takes in the page, by data set and problem."""


def report_problems(outlines: Iterable[ProblemOutline], bounds: Bounds) -> Problems:
    return {(one.dataset, one.problem_id): sum(map(bounds.cost, one.texts)) for one in outlines}


def load_index(run: FinishedRun, database: Database, bounds: Bounds) -> str:
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
    with database.write() as connection:
        connection.execute(_SIZES)
    writer.set_facts(indexed, progress(run.record, name), run_facts(run, report))
    load_samples(
        run,
        writer,
        indexed,
        report,
        lambda batch: _write_sizes(database, batch, run.record.seed, bounds),
    )
    return name


def select_samples(
    connection: sqlite3.Connection, problems: Problems, bounds: Bounds
) -> SampleSelection:
    """Choose samples within the bounds: round robin over data sets and statuses, in a random but
    reproducible order (hash of seed and sample)."""
    listed: set[SampleId] = set()
    with_texts: dict[SampleId, int] = {}
    prompts: set[tuple[str, str]] = set()
    samples, left = 0, bounds.text_bytes
    for dataset, problem_id, index, cost in connection.execute(_ROUND_ROBIN):
        samples += 1
        if len(listed) == bounds.rows:
            continue
        sample = SampleId(dataset, problem_id, index)
        listed.add(sample)
        problem = (dataset, problem_id)
        if problem not in prompts and problem in problems:
            cost += problems[problem]
        left -= cost
        if left >= 0:
            with_texts[sample] = len(with_texts)
            prompts.add(problem)
    return SampleSelection(samples, listed, with_texts)


def report_language(run: FinishedRun, sample: SampleId, place: int, bounds: Bounds) -> str | None:
    """The language of a sample's program; None beyond the samples that are highlighted.

    Args:
        run: The run.
        sample: The sample.
        place: Its place in ``SampleSelection.with_texts``.
        bounds: Size limits.
    """
    if place >= bounds.highlighted:
        return None
    return run.record.config.judge.for_dataset(sample.dataset).language


def _write_sizes(
    database: Database,
    samples: Sequence[JudgedSample],
    seed: int,
    bounds: Bounds,
) -> None:
    values = [
        (
            verdict.dataset,
            verdict.problem_id,
            verdict.sample_index,
            sha256(f"{seed}\n{verdict.sample.key}"),
            bounds.cost_of_sample(
                generation.completion if generation else "",
                *_texts(verdict.first_failed_case),
            ),
        )
        for verdict, generation in samples
    ]
    with database.write() as connection:
        connection.executemany("INSERT OR REPLACE INTO sizes VALUES (?, ?, ?, ?, ?)", values)


def _texts(case: FailedCase | None) -> tuple[str | None, ...]:
    return (case.input, case.expected, case.actual, case.stderr) if case else ()
