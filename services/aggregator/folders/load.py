"""Loading of a finished run from its folder into the index, in one pass over each file.

Lines that cannot be read are reported and skipped, so that the others can be shown. Memory holds
one batch of samples.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from services.aggregator.index.writer import IndexWriter, JudgedSample, KnownRun
from shared import artifacts
from shared.errors import DataError, OutputError, PlumblineError
from shared.finished_run import FinishedRun, record_of
from shared.json_lines import read_lines
from shared.ledger import RunProgress
from shared.outlines import ProblemOutline
from shared.run_record import JsonObject, PublishedResults, RunRecord
from shared.schemas import Generation, SampleId, Verdict, describe

RecordT = TypeVar("RecordT", bound=BaseModel)
Report = Callable[[PlumblineError], None]
"""Is told what cannot be read; what it raises ends the loading."""

# Samples in one transaction: each writes most pages of the run's indexes; more take memory.
_BATCH = 2000
# Fields of run.json that the page shows elsewhere, or that are written after the report.
_OMITTED = {"run", "qa_logs", "wandb"}


class LeftOutError(DataError):
    """A line that can be read, but does not belong to the others."""


def run_facts(run: FinishedRun, report: Report) -> JsonObject:
    """Metadata and results of a run as the index keeps them, of ``run.json`` and the figures."""
    facts: JsonObject = run.record.model_dump(mode="json", exclude=_OMITTED)
    try:
        found = run.folder.read_json(artifacts.SLICES)
        results = PublishedResults.model_validate({"metrics": run.summary, "slices": found or {}})
        facts["results"] = {
            **results.model_dump(mode="json"),
            **({} if found else {"slices": None}),
        }
    except OutputError as error:
        report(error)
    except ValidationError as error:
        report(OutputError(f"{run.folder.url}: the figures cannot be read ({describe(error)})"))
    return facts


def progress(record: RunRecord, name: str) -> RunProgress:
    """State of a run, none of whose samples have been read yet."""
    return RunProgress(name, "", record.state, "0", 0, 0)


def load_samples(
    run: FinishedRun,
    writer: IndexWriter,
    known: KnownRun,
    report: Report,
    each: Callable[[Sequence[JudgedSample]], None] = lambda _batch: None,
) -> None:
    """Load problems, verdicts and completions. Runs of early versions have no problems.

    ``report`` is called with every line that cannot be read, ``each`` with each batch of samples.

    Raises:
        DroppedRunError: The run was deleted from the index meanwhile.
    """
    if run.folder.exists(artifacts.PROBLEMS):
        outlines = _records(run, artifacts.PROBLEMS, ProblemOutline, report)
        while some := list(islice(outlines, _BATCH)):
            writer.load_outlines(known, some)
    samples = _judged_samples(run, report)
    while batch := list(islice(samples, _BATCH)):
        for sample in writer.load(known, batch):
            reason = "there is another verdict on it, or a number is too large; the line is skipped"
            path = _path(run, artifacts.VERDICTS)
            report(LeftOutError(f"{path}: sample {sample.key}: {reason}"))
        each(batch)


def _judged_samples(run: FinishedRun, report: Report) -> Iterator[JudgedSample]:
    """Yield each verdict with its completion; streams both files, which have the same order."""
    waiting: dict[SampleId, Generation] = {}
    generations = _records(run, artifacts.GENERATIONS, Generation, report)
    for verdict in _records(run, artifacts.VERDICTS, Verdict, report):
        while verdict.sample not in waiting and (made := next(generations, None)):
            waiting[made.sample] = made
        yield verdict, waiting.pop(verdict.sample, None)
    left = len(waiting) + sum(1 for _ in generations)
    if left:
        path = _path(run, artifacts.VERDICTS)
        report(LeftOutError(f"{path}: no verdict on {left} of the completions; they are not shown"))


def _records(run: FinishedRun, name: str, kind: type[RecordT], report: Report) -> Iterator[RecordT]:
    """Yield the lines that can be read."""
    path = _path(run, name)
    try:
        for number, line in read_lines(path):
            try:
                yield record_of(kind, f"{path}:{number}", line)
            except (DataError, OutputError) as error:
                report(error)
    except DataError as error:
        report(error)


def _path(run: FinishedRun, name: str) -> str:
    return f"{run.folder.url.rstrip('/')}/{name}"
