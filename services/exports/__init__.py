"""Export of a finished run to the file formats of other projects."""

from enum import StrEnum

from services.exports import evalplus, inspect_log, tables
from services.exports.samples import RunSamples, load_samples
from shared.artifacts import OutputFolder
from shared.errors import DataError

__all__ = ["ExportFormat", "export_samples", "load_samples"]


class ExportFormat(StrEnum):
    """Format of another project; the value is that of ``plumb export --format``."""

    INSPECT = "inspect"
    EVALPLUS = "evalplus"
    HF_PARQUET = "hf-parquet"


_WRITE = {
    ExportFormat.INSPECT: inspect_log.write,
    ExportFormat.EVALPLUS: evalplus.write,
    ExportFormat.HF_PARQUET: tables.write,
}


def export_samples(kind: ExportFormat, samples: RunSamples, folder: OutputFolder) -> list[str]:
    """Write a run's samples and return the names of the files within the folder.

    Raises:
        OutputError: The folder cannot be written.
        DataError: The run has no verdicts, or the format cannot represent any of its samples.
    """
    if not samples.datasets:
        raise DataError(f"{samples.run.folder.url}: the run has no verdicts, so nothing to export")
    return list(_WRITE[kind](samples, folder))
