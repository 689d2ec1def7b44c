"""Loading of a finished run from its folder into the index, in one pass over each file.

Lines that cannot be read are reported and skipped, so that the others can be shown. Memory holds
one batch of samples, and of each problem its facts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from services.aggregator.folders.files import LONGEST, Line, Place, RunFiles
from services.aggregator.index.problems import outline_notes, verdict_notes
from services.aggregator.index.rows import SampleRow
from services.aggregator.index.search import SampleTexts
from services.aggregator.index.writer import IndexWriter, KnownRun, PlacedRow
from services.aggregator.sources import ProblemKey
from shared import artifacts
from shared.errors import DataError, OutputError, PlumblineError
from shared.finished_run import FinishedRun, record_of
from shared.ledger import RunProgress
from shared.outlines import ProblemOutline
from shared.run_record import JsonObject, PublishedResults, RunRecord
from shared.schemas import Generation, ProblemFacts, SampleId, Verdict, describe

RecordT = TypeVar("RecordT", bound=BaseModel)
Report = Callable[[PlumblineError], None]
"""Is told what cannot be read; what it raises ends the loading."""

# Samples in one transaction. Each writes most pages of the run's indexes; more samples take memory.
_BATCH = 2000
# Completions that wait for their verdict, because the files' orders differ; others are read again.
_MOST_WAITING = 1000
# Fields of run.json that the page shows elsewhere, or that are written after the report.
_OMITTED = {"run", "qa_logs", "wandb"}


class LeftOutError(DataError):
    """A line that can be read, but does not belong to the others."""


@dataclass(frozen=True, slots=True)
class JudgedSample:
    """A verdict with its completion, if there is one, and the places of their lines."""

    verdict: Verdict
    place: Place
    generation: Generation | None
    generation_place: Place | None


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


def add_run(writer: IndexWriter, run: FinishedRun, name: str, folder: str | None) -> int:
    """Add a run without samples to the index; return its id there.

    Args:
        writer: Of the index.
        run: The run.
        name: Its name in the index.
        folder: As of :meth:`IndexWriter.add_run`.
    """
    planned = {one.dataset: (one.problems, one.samples) for one in run.record.datasets}
    data = {one.dataset: one.sha256 for one in run.record.datasets}
    return writer.add_run(progress(run.record, name), planned, data, folder=folder)


def progress(record: RunRecord, name: str) -> RunProgress:
    """State of a run, none of whose samples have been read yet."""
    return RunProgress(name, "", record.state, "0", 0, 0)


def load_outlines(
    files: RunFiles, writer: IndexWriter, run: KnownRun, report: Report
) -> dict[ProblemKey, ProblemFacts]:
    """Load the places of the problems; return their facts. Runs of early versions have none."""
    facts: dict[ProblemKey, ProblemFacts] = {}
    found = _records(files, artifacts.PROBLEMS, ProblemOutline, report, optional=True)
    while batch := list(islice(found, _BATCH)):
        keys = [(outline.dataset, outline.problem_id) for outline, _ in batch]
        places = [(key, place) for key, (_, place) in zip(keys, batch, strict=True)]
        prompts = {key: "\n".join(one.texts) for key, (one, _) in zip(keys, batch, strict=True)}
        writer.load_outlines(run, places, prompts)
        writer.note_problems(run, outline_notes(one for one, _ in batch))
        facts.update({key: one.facts for key, (one, _) in zip(keys, batch, strict=True)})
    return facts


def load_samples(
    files: RunFiles,
    writer: IndexWriter,
    run: KnownRun,
    facts: Mapping[ProblemKey, ProblemFacts],
    report: Report,
    each: Callable[[Sequence[JudgedSample]], None] = lambda _batch: None,
    *,
    searched: bool = True,
) -> None:
    """Load verdicts and completions.

    Args:
        files: Of the run.
        writer: Of the index.
        run: The run in the index.
        facts: Of the problems.
        report: Is told of every line that cannot be read.
        each: Called with each batch.
        searched: Whether texts are going to be searched.

    Raises:
        DroppedRunError: The run was deleted from the index meanwhile.
    """
    samples = judged_samples(files, report)
    while batch := list(islice(samples, _BATCH)):
        rows = [_row(one, facts, searched) for one in batch]
        writer.note_problems(run, verdict_notes(one.verdict for one in batch))
        for refused in writer.load(run, rows):
            sample = SampleId(refused.dataset, refused.problem_id, refused.sample_index)
            reason = "there is another verdict on it, or a number is too large; the line is skipped"
            path = files.path(artifacts.VERDICTS)
            report(LeftOutError(f"{path}: sample {sample.key}: {reason}"))
        each(batch)


def _row(one: JudgedSample, facts: Mapping[ProblemKey, ProblemFacts], searched: bool) -> PlacedRow:
    verdict = one.verdict
    known = facts.get((verdict.dataset, verdict.problem_id), ProblemFacts())
    row = SampleRow.of(verdict, one.generation, known)
    texts = SampleTexts.of(verdict, one.generation) if searched else None
    return PlacedRow(row, one.place, one.generation_place, texts)


def judged_samples(files: RunFiles, report: Report) -> Iterator[JudgedSample]:
    """Yield each verdict with its completion; streams both files, which have the same order."""
    waiting: dict[SampleId, tuple[Generation | None, Place]] = {}
    generations = _records(files, artifacts.GENERATIONS, Generation, report)
    for verdict, place in _records(files, artifacts.VERDICTS, Verdict, report):
        sample = verdict.sample
        while sample not in waiting and (found := next(generations, None)):
            made, made_place = found
            waiting[made.sample] = made if len(waiting) < _MOST_WAITING else None, made_place
        if sample in waiting:
            generation, made_place = waiting.pop(sample)
            generation = generation or _again(files, made_place)
            yield JudgedSample(verdict, place, generation, made_place)
        else:
            yield JudgedSample(verdict, place, None, None)
    left = len(waiting) + sum(1 for _ in generations)
    if left:
        path = files.path(artifacts.VERDICTS)
        report(LeftOutError(f"{path}: no verdict on {left} of the completions; they are not shown"))


def _again(files: RunFiles, place: Place) -> Generation:
    (line,) = files.read(artifacts.GENERATIONS, [place])
    return Generation.model_validate_json(line)


def _records(
    files: RunFiles, name: str, kind: type[RecordT], report: Report, *, optional: bool = False
) -> Iterator[tuple[RecordT, Place]]:
    """Yield the lines that can be read, with their places."""
    if optional and not files.exists(name):
        return
    try:
        for line in files.lines(name):
            try:
                yield _parsed(files.path(name), kind, line), line.place
            except (DataError, OutputError) as error:
                report(error)
    except DataError as error:
        report(error)


def _parsed(path: str, kind: type[RecordT], line: Line) -> RecordT:
    place = f"{path}:{line.number}"
    if line.text is None:
        raise DataError(f"{place}: longer than {LONGEST // 2**20} MiB; the line is skipped")
    return record_of(kind, place, line.text)
