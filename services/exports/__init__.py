"""Export of a finished run to the file formats of other projects."""

from enum import StrEnum

from services.exports import evalplus, inspect_log, tables
from services.exports.samples import RunSamples, load_samples
from shared.artifacts import OutputFolder
from shared.errors import DataError
from shared.finished_run import FinishedRun

__all__ = ["ExportFormat", "ExportTable", "export_cases", "export_samples", "load_samples"]


class ExportFormat(StrEnum):
    """Format of another project; the value is that of ``plumb export --format``."""

    INSPECT = "inspect"
    EVALPLUS = "evalplus"
    HF_PARQUET = "hf-parquet"
    CSV = "csv"


class ExportTable(StrEnum):
    """The rows of a table: a run's samples, or the cases that it recorded."""

    SAMPLES = "samples"
    CASES = "cases"


_TABLES = {ExportFormat.HF_PARQUET: "parquet", ExportFormat.CSV: "csv"}


def export_samples(kind: ExportFormat, samples: RunSamples, folder: OutputFolder) -> list[str]:
    """Write a run's samples and return the names of the files within the folder.

    Raises:
        OutputError: The folder cannot be written.
        DataError: The format cannot represent any sample of this run, or needs prompts that are not
            known.
    """
    members = (one for each in samples.datasets.values() for one in each)
    # Inspect shows what a model was asked: an empty text would pass for the question.
    if kind is ExportFormat.INSPECT and any(one.question is None for one in members):
        raise DataError(
            f"{samples.run.folder.url}: {'; '.join(samples.notes)}; the format {kind} needs the "
            f"prompts ({ExportFormat.HF_PARQUET} and {ExportFormat.CSV} do without)"
        )
    if kind in _TABLES:
        return [tables.write_samples(samples, folder, _TABLES[kind])]
    write = inspect_log.write if kind is ExportFormat.INSPECT else evalplus.write
    return list(write(samples, folder))


def export_cases(kind: ExportFormat, run: FinishedRun, folder: OutputFolder) -> list[str]:
    """Write a run's recorded cases and return the names of the files within the folder.

    Raises:
        OutputError: The folder cannot be written, or the record of cases is invalid.
        DataError: The run recorded no cases, or the format has no place for them.
    """
    if kind not in _TABLES:
        raise DataError(
            f"the format {kind} has no place for single cases; use {' or '.join(_TABLES)}"
        )
    return [tables.write_cases(run, folder, _TABLES[kind])]
