"""Choices of an export of training data."""

from enum import StrEnum


class TrainerFormat(StrEnum):
    """Layout of exported training data."""

    VERL = "verl"


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
