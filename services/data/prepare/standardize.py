"""One data set from its rows to the columns of a run, with what was dropped, doubled and found."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from services.data.config import DatasetConfig
from services.data.layouts.base import Dropped, Imported
from services.data.lists import read_list, write_list
from services.data.prepare.fetch import fetch, layout_of, options_of
from services.data.quality import audit_tests
from services.data.records import SOLUTIONS, solutions_text
from shared.dataset_writer import DatasetWriter, writing_dataset
from shared.quality import quality_text
from shared.reading import data_error


@dataclass(frozen=True, slots=True)
class Stage:
    """The files of a data set between its source and its publication."""

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
    def lists(self) -> tuple[Path, Path, Path]:
        return self.dropped, self.duplicates, self.findings

    def read(self, path: Path) -> list[dict[str, Any]]:
        return list(read_list(path))


@dataclass
class _Lists:
    rows: int = 0
    dropped: list[dict[str, Any]] = field(default_factory=list)
    duplicates: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)


def standardize(
    dataset: DatasetConfig, stage: Stage, advance: Callable[[], None], *, offline: bool
) -> int:
    """Read a data set's rows and write its stage; an earlier stage stays until all is read.

    Exact duplicates within the data set, by the hash of the canonical prompt, are left out but for
    the first.

    Args:
        dataset: What to read.
        stage: Where to write.
        advance: Called for every row.
        offline: Never touch the network.

    Returns:
        The number of rows.

    Raises:
        DataError: The source cannot be used.
    """
    lists = _Lists()
    with writing_dataset(str(stage.data), [SOLUTIONS]) as writer:
        seen: dict[str, str] = {}
        for row in _imported(dataset, stage, offline=offline):
            lists.rows += 1
            advance()
            if isinstance(row, Dropped):
                lists.dropped.append(asdict(row))
            else:
                _add(row, seen, lists, writer)
    for path, entries in zip(
        stage.lists, (lists.dropped, lists.duplicates, lists.findings), strict=True
    ):
        write_list(path, entries)
    return lists.rows


def _imported(
    dataset: DatasetConfig, stage: Stage, *, offline: bool
) -> Iterator[Imported | Dropped]:
    rows = fetch(stage.name, dataset, stage.folder, offline=offline)
    met: dict[str, tuple[str, str]] = {}
    for row in layout_of(dataset).read(rows, options_of(stage.name, dataset)):
        if isinstance(row, Imported):
            problem_id, digest = row.problem.problem_id, row.problem.prompt_sha256
        else:
            problem_id, digest = row.problem_id, ""
        place, other = met.setdefault(problem_id, (row.place, digest))
        # The same problem twice is a duplicate, which is listed; two problems need two names.
        if place != row.place and (digest != other or not digest):
            cause = f"another problem {problem_id!r} is at {place}; give one of them another id"
            raise data_error(row.place, cause)
        yield row


def _add(row: Imported, seen: dict[str, str], lists: _Lists, writer: DatasetWriter) -> None:
    problem = row.problem
    first = seen.get(problem.prompt_sha256)
    if first is not None:
        lists.duplicates.append(
            {
                "dataset": problem.dataset,
                "problem_id": problem.problem_id,
                "place": row.place,
                "duplicate_of": first,
                "kind": "exact",
                "similarity": 1.0,
                "removed": True,
            }
        )
        return
    seen[problem.prompt_sha256] = problem.problem_id
    findings = audit_tests(problem.tests)
    lists.findings += [
        {"problem_id": problem.problem_id, "finding": one.kind.value, "reason": one.reason}
        for one in findings
    ]
    quality = quality_text({one.kind for one in findings})
    writer.add(
        problem.model_copy(update={"quality": quality}),
        **{SOLUTIONS: solutions_text(row.solutions)},
    )
