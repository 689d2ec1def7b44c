"""Export of a finished run to the file formats of other projects."""

from collections.abc import Callable, Iterator
from enum import StrEnum

from services.exports import evalplus, inspect_log, lm_eval, tables
from services.exports.samples import RunSamples, load_samples
from shared.artifacts import OutputFolder

__all__ = ["ExportFormat", "export_samples", "load_samples"]


class ExportFormat(StrEnum):
    """Format of another project; the value is that of ``plumb export --format``."""

    INSPECT = "inspect"
    LM_EVAL = "lm-eval"
    EVALPLUS = "evalplus"
    HF_PARQUET = "hf-parquet"
    CSV = "csv"


_WRITERS: dict[ExportFormat, Callable[[RunSamples, OutputFolder], Iterator[str]]] = {
    ExportFormat.INSPECT: inspect_log.write,
    ExportFormat.LM_EVAL: lm_eval.write,
    ExportFormat.EVALPLUS: evalplus.write,
    ExportFormat.HF_PARQUET: tables.write_parquet,
    ExportFormat.CSV: tables.write_csv,
}


def export_samples(kind: ExportFormat, samples: RunSamples, folder: OutputFolder) -> list[str]:
    """Write a run's samples and return the names of the files within the folder.

    Raises:
        OutputError: The folder cannot be written.
        DataError: The format cannot represent any sample of this run.
    """
    return list(_WRITERS[kind](samples, folder))
