"""Findings of a comparison between a trainer's configuration and a run."""

from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue


class Kind(StrEnum):
    """Weight of a finding.

    ``MISTAKE``: the training would not do what its configuration seems to say. ``DIFFERENCE``: its
    validation would not measure what the run measured. ``EXPECTED``: training differs from
    measuring here, or it cannot be known from the configuration.
    """

    MISTAKE = "mistake"
    DIFFERENCE = "difference"
    EXPECTED = "expected"


@dataclass(frozen=True, slots=True)
class Finding:
    """A leaf of the trainer's configuration, or a data file, with its value and the run's.

    ``text`` says what follows from it, and what to do.
    """

    kind: Kind
    subject: str
    trainer: JsonValue = None
    run: JsonValue = None
    text: str = ""
