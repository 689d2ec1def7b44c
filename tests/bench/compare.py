"""`python -m tests.bench.compare`: the time and memory of comparing two large runs of the index.

An index on the local disk is filled with two runs; printed are the seconds of the first answer of
``/api/compare`` without HTTP, of the next ones and of a page of flips, and the resident memory.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from services.aggregator.comparison.answers import ComparedRuns
from services.aggregator.comparison.cache import Comparisons
from services.aggregator.comparison.models import FlipsQuery
from services.aggregator.index.database import Database, open_database
from services.aggregator.index.overview import find_run
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.writer import IndexWriter
from shared.analysis.runs import ProblemNote
from shared.config import Config
from shared.ledger import RunProgress
from shared.run_record import RunState
from shared.schemas import ProblemFacts
from shared.statuses import FinalStatus, JudgeMethod

RUNS = ("a", "b")
_FACTS = ProblemFacts("hard", ("dp", "graphs"), 20, 900)
_FAILURES = (FinalStatus.WRONG_ANSWER, FinalStatus.TIMEOUT, FinalStatus.RUNTIME_ERROR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000, help="of each run")
    parser.add_argument("--per-problem", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(Path(folder))
        for run in RUNS:
            _fill(database, run, arguments.samples, arguments.per_problem)
        print(f"resident memory: {_memory():.0f} MB before")
        _measure(database)
        print(f"resident memory: {_memory():.0f} MB after")
        database.close()


def _fill(database: Database, run: str, samples: int, per_problem: int) -> None:
    writer, problems = IndexWriter(database), samples // per_problem
    progress = RunProgress(run, "", RunState.COMPLETE, "0", 0, samples)
    writer.add_run(progress, {"d": (problems, samples)}, {"d": "0"})
    known = writer.runs()[run]
    writer.load(known, _rows(random.Random(run), samples, per_problem))
    note = ProblemNote("digest", _FACTS, JudgeMethod.BATCH, "tokens")
    writer.note_problems(known, {("d", _name(number)): note for number in range(problems)})
    writer.set_facts(known, progress, {"config": Config().model_dump(mode="json"), "name": run})


def _rows(source: random.Random, samples: int, per_problem: int) -> Iterator[SampleRow]:
    for number in range(samples):
        accepted = source.random() < 0.4
        passed = 20 if accepted else source.randrange(20)
        yield SampleRow(
            dataset="d",
            problem_id=_name(number // per_problem),
            sample_index=number % per_problem,
            completion_sha256="0" * 64,
            final_status=FinalStatus.SUCCESS if accepted else source.choice(_FAILURES),
            detail=None,
            accepted=accepted,
            pass_ratio=passed / 20,
            cases_passed=passed,
            cases_total=20,
            cases_not_run=0,
            output_tokens=source.randrange(2000),
            gen_time=1.0,
            total_judge_time=source.expovariate(1),
            attempts=1,
            confirmed=0,
            flipped=0,
            replica="r",
            worker="w",
            finished_at=1e9,
            judged_at=1e9,
            difficulty=_FACTS.difficulty,
            tags=list(_FACTS.tags),
            num_tests=_FACTS.num_tests,
            prompt_length=_FACTS.prompt_length,
        )


def _name(number: int) -> str:
    """The id of a problem; five are of a contest."""
    return f"{number // 5}_{'ABCDE'[number % 5]}. A problem"


def _measure(database: Database) -> None:
    comparisons = Comparisons()

    def ask(read: Callable[[ComparedRuns], object]) -> float:
        began = time.monotonic()
        with database.read() as connection:
            runs = [run for name in RUNS if (run := find_run(connection, name))]
            read(ComparedRuns(comparisons.of(connection, runs), runs))
        return time.monotonic() - began

    def flips(compared: ComparedRuns) -> None:
        query = FlipsQuery(runs="a,b", dataset="d", q="7")
        with database.read() as connection:
            compared.flips(connection, query).model_dump_json()

    began = time.process_time()
    first = ask(lambda one: one.answer().model_dump_json())
    print(f"first comparison: {first:.2f} s, CPU {time.process_time() - began:.2f} s")
    again = [ask(lambda one: one.answer().model_dump_json()) for _ in range(40)]
    _print("next comparisons", again)
    _print("pages of flips", [ask(flips) for _ in range(40)])


def _print(name: str, seconds: list[float]) -> None:
    p95 = statistics.quantiles(seconds, n=20)[-1]
    print(f"{name}: median {1000 * statistics.median(seconds):.0f} ms, p95 {1000 * p95:.0f} ms")


def _memory() -> float:
    return float(psutil.Process().memory_info().rss / 1e6)


if __name__ == "__main__":
    main()
