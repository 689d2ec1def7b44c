"""Resolved configuration of a trainer: verl's, as Hydra writes it or as ``main_ppo`` prints it.

A configuration for generating (``main_generation_server``'s, or the generation.yaml of older
versions) is read in the keys of a run's configuration, as ``plumb run`` reads it.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from shared.errors import ConfigError
from shared.verl_translation import notices, translate

# Ray marks the lines of a process with its name; a terminal's colours may be in between.
_RAY_MARK = re.compile(r"^(?:\x1b\[\d+m)*\(\w+ pid=\d+(?:, ip=[\d.]+)?\)(?:\x1b\[\d+m)* ?", re.M)
_PRINTED = re.compile(r"^\{'actor_rollout_ref'", re.M)
_LARGEST = 64 << 20  # bytes; a log of many hours


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Values of a configuration by dotted path; interpolations are resolved.

    Attributes:
        values: The configuration.
        generates: Whether it is for generating answers, without training.
        notices: Lines about keys that were read under other names, or have no effect.
    """

    values: Mapping[str, JsonValue]
    generates: bool = False
    notices: Sequence[str] = ()

    def get(self, path: str) -> JsonValue:
        """The value at a path; None if it, or a part of the path, is missing."""
        found: JsonValue = dict(self.values)
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return None if found == "???" else found

    def number(self, path: str) -> float | None:
        """A number, as a float; None if the value is none."""
        found = self.get(path)
        return float(found) if isinstance(found, int | float) else None

    def text(self, path: str) -> str:
        """A text; empty if the value is none."""
        found = self.get(path)
        return found if isinstance(found, str) else ""

    def files(self, path: str) -> list[str]:
        """A file or a list of files."""
        found = self.get(path)
        return [str(one) for one in found] if isinstance(found, list) else [self.text(path)]


def read_trainer_config(path: str) -> TrainerConfig:
    """Read ``.hydra/config.yaml``, the output of ``--cfg job``, or a log of ``main_ppo``.

    Raises:
        ConfigError: The file cannot be read, or has no configuration of verl; or two names of a key
            have different values.
    """
    file = Path(path) / ".hydra" / "config.yaml" if Path(path).is_dir() else Path(path)
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST).decode("utf-8", "replace")
    except OSError as error:
        cause = error.strerror or error
        raise ConfigError(f"cannot read the trainer's config {file}: {cause}") from None
    values = _printed(text) if "'actor_rollout_ref'" in text else _yaml(text, str(file))
    given = values if isinstance(values, dict) else {}
    older = isinstance(given.get("rollout"), dict)
    if not older and not isinstance(given.get("actor_rollout_ref"), dict):
        raise ConfigError(
            f"{file}: no configuration of verl (a mapping with actor_rollout_ref, or rollout in "
            "older versions); give outputs/…/.hydra/config.yaml, the output of `--cfg job "
            "--resolve`, or the log"
        )
    config = TrainerConfig(given)
    if not older and config.get("data.output_path") is None:
        return config
    found = translate(given, keep=True)
    return TrainerConfig(found.document, generates=True, notices=notices(found.given))


def _printed(text: str) -> object:
    """The last configuration that was printed: a dict literal over many lines."""
    clean = _RAY_MARK.sub("", text)
    for begin in reversed(list(_PRINTED.finditer(clean))):
        literal = clean[begin.start() :]
        # pprint indents by one, so the only line that ends the literal ends in a brace.
        for end in re.finditer(r"\}$", literal, re.M):
            try:
                return ast.literal_eval(literal[: end.end()])
            except (SyntaxError, ValueError):
                continue
    return None


def _yaml(text: str, place: str) -> object:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        return OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    except (YAMLError, OmegaConfBaseException, ValueError) as error:
        cause = " ".join(str(error).split())[:300]
        raise ConfigError(f"{place}: not a YAML configuration: {cause}") from None
