"""Loading of a finished run from its folder into the index, in one pass over each file.

Lines that cannot be read are reported and skipped, so that the others can be shown. Memory holds
one batch of samples.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from pydantic import ValidationError

from services.aggregator.index.writer import IndexWriter, JudgedSample, KnownRun
from shared import artifacts
from shared.errors import OutputError
from shared.finished_run import FinishedRun, LeftOutError, Report
from shared.ledger import RunProgress
from shared.outlines import read_outlines
from shared.run_record import JsonObject, PublishedResults
from shared.schemas import describe

# Samples in one transaction: each writes most pages of the run's indexes; more take memory.
_BATCH = 2000
# Fields of run.json that the page shows elsewhere, or that are written after the report.
_OMITTED = {"run", "qa_logs", "wandb"}


def run_facts(run: FinishedRun, report: Report) -> JsonObject:
    """Metadata and results of a run as the index keeps them, of ``run.json`` and the figures."""
    facts: JsonObject = run.record.model_dump(mode="json", exclude=_OMITTED)
    try:
        slices = run.folder.read_json(artifacts.SLICES)
        results = PublishedResults.model_validate({"metrics": run.summary, "slices": slices or {}})
        facts["results"] = {
            **results.model_dump(mode="json"),
            **({} if slices else {"slices": None}),
        }
    except OutputError as error:
        report(error)
    except ValidationError as error:
        report(OutputError(f"{run.folder.url}: the figures cannot be read ({describe(error)})"))
    return facts


def add_run(
    run: FinishedRun, writer: IndexWriter, name: str, report: Report, folder: str | None = None
) -> KnownRun:
    """Put a run into the index under a name, still without samples.

    ``folder`` is the URL of a folder that is watched: when it changes, the run is read again.
    """
    facts = run_facts(run, report)
    progress = RunProgress(name, "", run.record.state, "0", 0, 0)
    indexed = writer.add_run(progress, run.record.datasets, folder)
    writer.set_facts(indexed, progress, facts)
    return indexed


def load_samples(
    run: FinishedRun,
    writer: IndexWriter,
    indexed: KnownRun,
    report: Report,
    each: Callable[[Sequence[JudgedSample]], None] = lambda _batch: None,
) -> None:
    """Load problems, verdicts and completions. Runs of early versions have no problems.

    ``report`` is called with every line that cannot be read, ``each`` with each batch of samples.

    Raises:
        DroppedRunError: The run was deleted from the index meanwhile.
    """
    outlines = read_outlines(run.folder, report)
    while some := list(islice(outlines, _BATCH)):
        writer.load_outlines(indexed, some)
    samples = run.judged_samples(report)
    while batch := list(islice(samples, _BATCH)):
        for sample in writer.load(indexed, batch):
            reason = "there is another verdict on it, or a number is too large; the line is skipped"
            path = run.path(artifacts.VERDICTS)
            report(LeftOutError(f"{path}: sample {sample.key}: {reason}"))
        each(batch)
