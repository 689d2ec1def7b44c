"""Stages that are there already are not made again."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from services.data.config import DatasetConfig
from services.data.lists import replace_text
from services.data.prepare.fetch import revision_of
from services.data.prepare.standardize import Stage, standardize
from shared.canonical import CANONICAL_VERSION
from shared.data_lock import hash_file
from shared.errors import DataError
from shared.schemas import sha256

# Goes up when the same rows come to make another stage.
_STAGE_VERSION = 1


class StageState(BaseModel):
    """What a stage was made of, and its files' hashes. ``rows`` counts what the source had."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    revision: str
    rows: int
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Staged:
    """A stage that is there. ``reused``: it was there before."""

    name: str
    dataset: DatasetConfig
    stage: Stage
    state: StageState
    reused: bool


def stage_dataset(
    name: str, dataset: DatasetConfig, raw: Path, advance: Callable[[], None], *, offline: bool
) -> Staged:
    """Make a data set's stage, or find it made of the same source in the same way.

    Offline, a stage that was made of what the config says is taken as it is: whether the source has
    changed since cannot be asked.

    Raises:
        DataError: The source cannot be used.
    """
    stage, old = Stage(raw, name), _read_state(Stage(raw, name))
    revision = _revision(dataset, old, offline=offline)
    key = _key(dataset, revision)
    if old is not None and old.key == key and old.files == _hashes(stage):
        return Staged(name, dataset, stage, old, reused=True)
    rows = standardize(dataset, stage, advance, offline=offline)
    state = StageState(key=key, revision=revision, rows=rows, files=_hashes(stage))
    replace_text(stage.state, state.model_dump_json(indent=2) + "\n")
    return Staged(name, dataset, stage, state, reused=False)


def _revision(dataset: DatasetConfig, old: StageState | None, *, offline: bool) -> str:
    if offline and old is not None and dataset.source.kind != "local":
        return old.revision
    return revision_of(dataset, offline=offline)


def _key(dataset: DatasetConfig, revision: str) -> str:
    """What decides the content; how the data set is described and used does not."""
    described = {"role", "version", "licence", "source_url", "remove_near_duplicates"}
    parts = [
        dataset.model_dump(mode="json", exclude=described),
        revision,
        CANONICAL_VERSION,
        _STAGE_VERSION,
    ]
    return sha256(json.dumps(parts, sort_keys=True))


def _read_state(stage: Stage) -> StageState | None:
    try:
        return StageState.model_validate_json(stage.state.read_bytes())
    except (OSError, ValidationError):
        return None  # never finished, or of another version: it is made anew


def _hashes(stage: Stage) -> dict[str, str]:
    try:
        return {path.name: hash_file(str(path)).sha256 for path in (stage.data, *stage.lists)}
    except DataError:
        return {}
