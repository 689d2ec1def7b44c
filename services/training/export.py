"""Exported training data: the choices of an export, and ``export.json``, its provenance."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from shared.artifacts import OutputFolder
from shared.data_lock import LockedFile
from shared.errors import OutputError
from shared.run_record import PromptTemplate, SystemPrompt
from shared.schemas import describe

RECORD = "export.json"


class Purpose(StrEnum):
    """What a file is read for: ``extra_info.split`` of its rows, and the file's name."""

    TRAIN = "train"
    VALIDATION = "validation"

    @property
    def file(self) -> str:
        """Name of the exported file."""
        return f"{self}.parquet"


class TestsForm(StrEnum):
    """Content of ``reward_model.ground_truth``.

    ``REFERENCE``: the problem's reference; the tests stay with the service that judges.
    ``INLINE``: the tests themselves, which a trainer copies into every rollout.
    """

    REFERENCE = "reference"
    INLINE = "inline"


class ExportedFile(LockedFile):
    """A written file: its hash and size, and the problems of each data set."""

    datasets: dict[str, int]


class ExportRecord(BaseModel):
    """``export.json``: provenance of the files beside it.

    ``config`` has the leaves of the baseline's protocol by path; ``prompts`` and ``system_prompt``
    are as in a run's ``run.json``; ``data_files`` are the prepared files by purpose.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 1
    tests: TestsForm
    agent_name: str | None = None
    config: dict[str, JsonValue]
    prompts: dict[str, PromptTemplate]
    system_prompt: SystemPrompt | None = None
    data_files: dict[Purpose, list[str]]
    files: dict[str, ExportedFile]


def read_export(folder: OutputFolder) -> ExportRecord | None:
    """Read the record of an export; None if the folder has none.

    Raises:
        OutputError: The record cannot be read.
    """
    document = folder.read_json(RECORD)
    if document is None:
        return None
    try:
        return ExportRecord.model_validate(document)
    except ValidationError as error:
        cause = f"not the record of an export ({describe(error)})"
        raise OutputError(f"{folder.shown}/{RECORD}: {cause}; export again") from None
