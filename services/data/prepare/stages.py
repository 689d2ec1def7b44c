"""Resumable stages: fetch, standardize and audit one data set before publication.

A stage is reused as long as its key, a hash of source, revision and rules, is unchanged.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from services.data.config import DatasetConfig, HubSource, LocalSource, parse_ids
from services.data.layouts import get_layout
from services.data.layouts.base import Dropped, Imported, Options
from services.data.manifests import Duplicate, QualityEntry, replace_text, write_list
from services.data.quality import audit_problem
from services.data.records import DatasetWriter, writing_dataset
from services.data.rows import Rows, hub, local, sandbox_fusion
from shared.data_lock import hash_file
from shared.datasets import CANONICAL_VERSION
from shared.errors import DataError, data_error
from shared.redaction import redact_values
from shared.schemas import quality_text, sha256

# Increment when the same rows produce another stage.
_STAGE_VERSION = 4


@dataclass(frozen=True, slots=True)
class StageFiles:
    """Paths of a data set's intermediate files."""

    folder: Path
    name: str

    @property
    def data(self) -> Path:
        return self.folder / f"{self.name}.parquet"

    @property
    def dropped(self) -> Path:
        return self.folder / f"{self.name}.dropped.jsonl"

    @property
    def duplicates(self) -> Path:
        return self.folder / f"{self.name}.duplicates.jsonl"

    @property
    def findings(self) -> Path:
        return self.folder / f"{self.name}.findings.jsonl"

    @property
    def state(self) -> Path:
        return self.folder / f"{self.name}.state.json"

    @property
    def content(self) -> tuple[Path, ...]:
        """Files whose hashes are in the state."""
        return self.data, self.dropped, self.duplicates, self.findings


class StageState(BaseModel):
    """Provenance of a stage and the hashes of its files. ``rows`` counts the source's rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    revision: str
    rows: int
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Stage:
    """A finished stage; ``reused`` if an earlier preparation built it."""

    name: str
    dataset: DatasetConfig
    files: StageFiles
    state: StageState
    reused: bool


def stage_dataset(
    name: str, dataset: DatasetConfig, raw: Path, advance: Callable[[], None], *, offline: bool
) -> Stage:
    """Build a data set's stage, or reuse it if source and rules are unchanged.

    Offline, a stage of a remote source is reused without a check for changes of the source.

    Args:
        name: Name of the data set.
        dataset: Its source and options.
        raw: Folder of the stages.
        advance: Called for every row.
        offline: Never use the network.

    Raises:
        DataError: The source cannot be used.
    """
    files = StageFiles(raw, name)
    old = _read_state(files)
    revision = _revision(dataset, old, offline=offline)
    key = _key(dataset, revision)
    if old is not None and old.key == key and old.files == _hashes(files):
        return Stage(name, dataset, files, old, reused=True)
    rows = _standardize(_pinned(dataset, revision), files, advance, offline=offline)
    state = StageState(key=key, revision=revision, rows=rows, files=_hashes(files))
    replace_text(str(files.state), state.model_dump_json(indent=2) + "\n")
    return Stage(name, dataset, files, state, reused=False)


# State


def _read_state(files: StageFiles) -> StageState | None:
    try:
        return StageState.model_validate_json(files.state.read_bytes())
    except (OSError, ValidationError):
        return None  # unfinished or of another version: rebuild the stage


def _revision(dataset: DatasetConfig, old: StageState | None, *, offline: bool) -> str:
    """Identify the version of the source: hub commit, hash of local files, empty otherwise."""
    source = dataset.source
    if isinstance(source, LocalSource):
        return local.revision(source.path)
    if offline and old is not None and old.key == _key(dataset, old.revision):
        return old.revision
    return hub.resolve_revision(source, offline=offline) if isinstance(source, HubSource) else ""


def _pinned(dataset: DatasetConfig, revision: str) -> DatasetConfig:
    """Fix a hub source to the recorded commit: a branch may move before its rows are read."""
    if not isinstance(dataset.source, HubSource):
        return dataset
    source = dataset.source.model_copy(update={"revision": revision})
    return dataset.model_copy(update={"source": source})


def _key(dataset: DatasetConfig, revision: str) -> str:
    """Hash everything that determines the content, without descriptions and role."""
    described = {"role", "version", "licence", "source_url", "remove_near_duplicates", "family"}
    rules = dataset.model_dump(mode="json", exclude=described)
    rules["source"] = redact_values(rules["source"])  # another password is no other source
    parts = [
        rules,
        revision,
        CANONICAL_VERSION,
        _STAGE_VERSION,
    ]
    return sha256(json.dumps(parts, sort_keys=True))


def _hashes(files: StageFiles) -> dict[str, str]:
    try:
        return {path.name: hash_file(str(path)).sha256 for path in files.content}
    except DataError:
        return {}


# Rows


@dataclass
class _Lists:
    rows: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    findings: list[QualityEntry] = field(default_factory=list)


def _standardize(
    dataset: DatasetConfig, files: StageFiles, advance: Callable[[], None], *, offline: bool
) -> int:
    """Read a data set's rows and write its stage; returns the number of rows.

    Of exact duplicates, by the hash of the canonical prompt, only the first is kept. An earlier
    stage is replaced only after all rows are read.
    """
    lists = _Lists()
    with writing_dataset(str(files.data), solutions=True) as writer:
        seen: dict[str, str] = {}
        for row in _read_rows(dataset, files, offline=offline):
            lists.rows += 1
            advance()
            if isinstance(row, Dropped):
                lists.dropped.append(row)
            else:
                _add(row, seen, lists, writer)
    write_list(str(files.dropped), lists.dropped)
    write_list(str(files.duplicates), lists.duplicates)
    write_list(str(files.findings), lists.findings)
    return lists.rows


def _read_rows(
    dataset: DatasetConfig, files: StageFiles, *, offline: bool
) -> Iterator[Imported | Dropped]:
    """Read the rows through the layout, and check that different problems have different ids."""
    layout = get_layout(dataset.layout)
    options = _options(files.name, dataset)
    rows = _fetch(dataset, files, layout.columns(options), offline=offline)
    known: dict[str, tuple[str, str]] = {}
    for row in layout.read(rows, options):
        if isinstance(row, Imported):
            problem_id, digest = row.problem.problem_id, row.problem.prompt_sha256
        else:
            problem_id, digest = row.problem_id, ""
        place, other = known.setdefault(problem_id, (row.place, digest))
        # A repeated problem is listed as a duplicate; different problems need different ids.
        if place != row.place and (digest != other or not digest):
            cause = f"another problem {problem_id!r} is at {place}; give one of them another id"
            raise data_error(row.place, cause)
        yield row


def _options(name: str, dataset: DatasetConfig) -> Options:
    return Options(
        name=name,
        split=dataset.split,
        ids=parse_ids(dataset.ids) if dataset.ids else None,
        contest_dates=dataset.contest_dates,
        include_generated=dataset.generated_tests,
        solutions=dataset.solutions,
        source=name,
    )


def _fetch(
    dataset: DatasetConfig, files: StageFiles, columns: tuple[str, ...], *, offline: bool
) -> Rows:
    source = dataset.source
    if isinstance(source, LocalSource):
        return local.rows(source.path, columns)
    if isinstance(source, HubSource):
        return hub.rows(source, columns, None, offline=offline)
    cache = files.folder / f"{files.name}.rows.jsonl"
    return sandbox_fusion.rows(source, dataset.layout, cache, offline=offline)


def _add(row: Imported, seen: dict[str, str], lists: _Lists, writer: DatasetWriter) -> None:
    problem = row.problem
    first = seen.get(problem.prompt_sha256)
    if first is not None:
        lists.duplicates.append(
            Duplicate(
                dataset=problem.dataset,
                problem_id=problem.problem_id,
                place=row.place,
                duplicate_of=first,
                kind="exact",
                similarity=1.0,
                removed=True,
            )
        )
        return
    seen[problem.prompt_sha256] = problem.problem_id
    findings = audit_problem(problem)
    lists.findings += [QualityEntry(problem.problem_id, one.kind, one.reason) for one in findings]
    quality = quality_text({one.kind for one in findings})
    writer.add(problem.model_copy(update={"quality": quality}), row.solutions, row.statement)
