"""The samples of a finished run in an index of the report's own, and which of them it shows."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from services.aggregator.index import Database, SampleRow
from services.aggregator.index.facts import public
from services.aggregator.index.rows import ProblemFacts
from services.aggregator.index.writer import IndexWriter
from services.aggregator.outlines import ProblemOutline
from services.aggregator.report.bounds import Bounds
from shared import artifacts
from shared.finished_run import FinishedRun
from shared.ledger import RunProgress
from shared.schemas import FailedCase, Generation, SampleId, Verdict, sha256

_AT_ONCE = 1000
_SIZES = """
CREATE TABLE sizes (
  dataset TEXT, problem_id TEXT, sample_index INTEGER, draw TEXT, bytes INTEGER,
  PRIMARY KEY (dataset, problem_id, sample_index)
) WITHOUT ROWID
"""
# Of each data set and status one sample after the other, so that what is rare is all there.
_IN_TURN = """
SELECT dataset, problem_id, sample_index, bytes FROM (
  SELECT *, row_number() OVER (PARTITION BY dataset, final_status ORDER BY draw) AS turn
  FROM samples JOIN sizes USING (dataset, problem_id, sample_index)
) ORDER BY turn, dataset, final_status
"""
# Of run.json: what the page has elsewhere, and what was made of the run after the page.
_LEFT_OUT = ("plan", "run", "config", "versions", "results", "qa_logs", "wandb")


@dataclass(frozen=True, slots=True)
class Known:
    """What is kept of a problem; ``cost`` is that of its prompt in the page."""

    facts: ProblemFacts
    cost: int


@dataclass(frozen=True, slots=True)
class Shown:
    """The samples that are listed, and those among them whose texts are there; of ``samples``."""

    samples: int
    listed: set[SampleId]
    with_texts: set[SampleId]


Problems = Mapping[tuple[str, str], Known]


def known(outlines: Iterable[ProblemOutline], bounds: Bounds) -> Problems:
    return {
        (one.dataset, one.problem_id): Known(one.facts, bounds.cost(one.prompt)) for one in outlines
    }


def joined(run: FinishedRun) -> Iterator[tuple[Verdict, Generation | None]]:
    """Yield each verdict with its completion; both files are in the order of the plan."""
    waiting: dict[SampleId, Generation] = {}
    generations = run.generations()
    for verdict in run.verdicts():
        while verdict.sample not in waiting and (generation := next(generations, None)):
            waiting[generation.sample] = generation
        yield verdict, waiting.pop(verdict.sample, None)


def load(run: FinishedRun, database: Database, problems: Problems, bounds: Bounds) -> str:
    """Fill the index with a run as its folder has it; returns the run's id."""
    name, writer = str(run.run.get("run") or run.name), IndexWriter(database)
    look = RunProgress(name, "", run.record.state, "0", 0, 0)
    writer.add_run(look, _planned(run))
    entered = writer.runs()[name]
    with database.write() as connection:
        connection.execute(_SIZES)
    completions, pairs = 0, joined(run)
    while chunk := list(islice(pairs, _AT_ONCE)):
        writer.load(entered, [_row(pair, problems) for pair in chunk])
        _write_sizes(database, chunk, int(run.run.get("seed") or 0), bounds)
        completions += sum(generation is not None for _, generation in chunk)
    facts = {key: value for key, value in run.run.items() if key not in _LEFT_OUT}
    facts |= {key: run.run[key] for key in ("config", "versions") if key in run.run}
    facts["results"] = {"metrics": run.summary, "slices": run.folder.read_json(artifacts.SLICES)}
    look = RunProgress(name, "", run.record.state, "0", 0, completions)
    writer.set_facts(entered, look, public(facts))
    return name


def choose(connection: sqlite3.Connection, problems: Problems, bounds: Bounds) -> Shown:
    """Choose what is shown: in turns over data sets and statuses, in an order that the run's seed
    and the samples' names decide, until the bounds are reached."""
    listed: set[SampleId] = set()
    with_texts: set[SampleId] = set()
    prompts: set[tuple[str, str]] = set()
    samples, left = 0, bounds.text_bytes
    for dataset, problem_id, index, cost in connection.execute(_IN_TURN):
        samples += 1
        if len(listed) == bounds.rows:
            continue
        sample = SampleId(dataset, problem_id, index)
        listed.add(sample)
        problem = (dataset, problem_id)
        if problem not in prompts and problem in problems:
            cost += problems[problem].cost
        left -= cost
        if left >= 0:
            with_texts.add(sample)
            prompts.add(problem)
    return Shown(samples, listed, with_texts)


def _planned(run: FinishedRun) -> dict[str, tuple[int, int]]:
    return {
        str(one["dataset"]): (int(one.get("problems") or 0), int(one.get("samples") or 0))
        for one in run.datasets
    }


def _row(pair: tuple[Verdict, Generation | None], problems: Problems) -> SampleRow:
    verdict, generation = pair
    found = problems.get((verdict.dataset, verdict.problem_id))
    return SampleRow.of(verdict, generation, found.facts if found else ProblemFacts())


def _write_sizes(
    database: Database,
    pairs: Iterable[tuple[Verdict, Generation | None]],
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
                generation.completion if generation else "", *_texts(verdict.first_failed_case)
            ),
        )
        for verdict, generation in pairs
    ]
    with database.write() as connection:
        connection.executemany("INSERT OR REPLACE INTO sizes VALUES (?, ?, ?, ?, ?)", values)


def _texts(case: FailedCase | None) -> tuple[str | None, ...]:
    return (case.input, case.expected, case.actual, case.stderr) if case else ()
