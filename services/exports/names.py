"""Names that other projects' readers take apart again."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from services.exports.samples import RunSamples
from shared.schemas import sha256


def moment(samples: RunSamples) -> str:
    """When the run began, in UTC, as a part of file names: ``2026-01-31T12-00-00``."""
    started = float(samples.run.run.get("started_at") or 0)
    return datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H-%M-%S")


def task_name(dataset: str) -> str:
    """The data set's name with nothing but letters, digits and ``_``."""
    return re.sub(r"\W", "_", dataset, flags=re.ASCII)


def task_names(datasets: Iterable[str]) -> dict[str, str]:
    """``task_name`` of each data set; of those with the same one, the later ones have a hash."""
    names: dict[str, str] = {}
    for dataset in datasets:
        name = task_name(dataset)
        names[dataset] = f"{name}_{sha256(dataset)[:8]}" if name in names.values() else name
    return names


def file_part(dataset: str) -> str:
    """The same with ``-`` for ``_``, which separates the parts of a file's name."""
    return task_name(dataset).replace("_", "-")


def folder_name(model: str) -> str:
    """The model's name as lm-evaluation-harness names its folder."""
    return re.sub(r'["<>:/|\\?*\[\]]+', "__", model)
