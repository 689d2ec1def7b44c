"""The rows of a configured data set, wherever they come from."""

from pathlib import Path

from services.data.config import DatasetConfig, HubSource, LocalSource
from services.data.ids import parse_ids
from services.data.layouts.base import Layout, Options
from services.data.layouts.registry import get_layout
from services.data.rows import hub, local, sandbox_fusion
from services.data.rows.base import Rows
from shared.data_lock import hash_file


def layout_of(dataset: DatasetConfig) -> Layout:
    return get_layout(dataset.layout)


def options_of(name: str, dataset: DatasetConfig) -> Options:
    """What the layout is told."""
    return Options(
        name=name,
        split=dataset.split,
        ids=parse_ids(dataset.ids) if dataset.ids else None,
        include_generated=dataset.generated_tests,
        solutions=dataset.solutions,
        source=name,
    )


def fetch(name: str, dataset: DatasetConfig, raw: Path, *, offline: bool) -> Rows:
    """Yield the rows of a data set as its source has them.

    Raises:
        DataError: While iterating: they are not to be had.
    """
    source, columns = dataset.source, layout_of(dataset).columns(options_of(name, dataset))
    if isinstance(source, LocalSource):
        return local.rows(source.path, columns)
    if isinstance(source, HubSource):
        return hub.rows(source, columns, None, offline=offline)
    return sandbox_fusion.rows(source, dataset.layout, raw / f"{name}.rows.jsonl", offline=offline)


def revision_of(dataset: DatasetConfig, *, offline: bool) -> str:
    """What tells one state of the source from another; empty where nothing does.

    A commit for the hub, the hash of the content for local files.

    Raises:
        DataError: The source is not there, or it has no such revision.
    """
    source = dataset.source
    if isinstance(source, HubSource):
        return hub.resolve_revision(source, offline=offline)
    if isinstance(source, LocalSource):
        return _content(source.path)
    return ""


def _content(path: str) -> str:
    return "sha256:" + "+".join(hash_file(file).sha256 for file in local.files(path))
