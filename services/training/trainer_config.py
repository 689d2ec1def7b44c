"""Resolved configuration of a trainer (verl's, as Hydra writes it), and findings about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import JsonValue

from shared.config_files import load_document
from shared.errors import ConfigError


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


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Values of a configuration by dotted path; interpolations are resolved."""

    values: Mapping[str, JsonValue]

    def get(self, path: str) -> JsonValue:
        """The value at a path; None if it, or a part of the path, is missing."""
        value: JsonValue = dict(self.values)
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return None if value == "???" else value

    def number(self, path: str) -> float | None:
        """A number, as a float; None if the value is none."""
        value = self.get(path)
        return float(value) if isinstance(value, int | float) else None

    def text(self, path: str) -> str:
        """A text; empty if the value is none."""
        value = self.get(path)
        return value if isinstance(value, str) else ""

    def files(self, path: str) -> list[str]:
        """A file or a list of files."""
        value = self.get(path)
        return [str(file) for file in value] if isinstance(value, list) else [self.text(path)]


def read_trainer_config(path: str) -> TrainerConfig:
    """Read ``.hydra/config.yaml``, or the output of ``--cfg job --resolve``.

    Raises:
        ConfigError: The file cannot be read, or has no configuration of verl.
    """
    file = Path(path) / ".hydra" / "config.yaml" if Path(path).is_dir() else Path(path)
    values = load_document(file, missing=True)
    if not isinstance(values, dict) or not isinstance(values.get("actor_rollout_ref"), dict):
        raise ConfigError(
            f"{file}: no configuration of verl (a mapping with actor_rollout_ref); give "
            "outputs/…/.hydra/config.yaml, or the output of `--cfg job --resolve`"
        )
    return TrainerConfig({str(name): value for name, value in values.items()})
