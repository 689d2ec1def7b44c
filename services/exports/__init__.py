"""Export of a finished run to other projects' file formats."""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.exports.samples import RunSamples
    from shared.artifacts import OutputFolder


class ExportFormat(StrEnum):
    INSPECT = "inspect"
    LM_EVAL = "lm-eval"
    EVALPLUS = "evalplus"
    HF_PARQUET = "hf-parquet"
    CSV = "csv"


def export_samples(kind: ExportFormat, samples: "RunSamples", folder: "OutputFolder") -> list[str]:
    """Write a run's samples and return the names of the files within the folder.

    Raises:
        OutputError: The folder cannot be written.
        DataError: The format cannot represent any sample of this run.
    """
    # Imported here so that the names of the formats cost nothing at start-up.
    from services.exports import evalplus, inspect_log, lm_eval, tables

    writers = {
        ExportFormat.INSPECT: inspect_log.write,
        ExportFormat.LM_EVAL: lm_eval.write,
        ExportFormat.EVALPLUS: evalplus.write,
        ExportFormat.HF_PARQUET: tables.write_parquet,
        ExportFormat.CSV: tables.write_csv,
    }
    return list(writers[kind](samples, folder))
