"""Tables of records on the server: a folder with one JSONL file per dataset."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from services.sandbox.datasets.base import bad_request, internal_error, not_found
from services.sandbox.schemas import Key, Record, SubmitConfig, dataset_name
from shared.errors import ConfigError

PREFIX = "code_eval_"
# Id columns of a record; records are sorted by the first that they have.
KEYS = ("id", "task_id", "name")
# Bytes of the records of one page.
PAGE_LIMIT = 64 * 2**20

Version = tuple[int, int]


@dataclass(frozen=True)
class Table:
    """Index of a file's records, which may be larger than memory.

    Attributes:
        version: The file's size and modification time.
        offsets: Offsets of the records' lines, in the order of their ids: numbers, then texts.
        by_key: Offset by each id of a record, as text: ``1`` and ``"1"`` are the same id.
    """

    path: Path
    version: Version
    offsets: list[int]
    by_key: dict[str, int]

    def read(self, offsets: list[int]) -> list[Record]:
        """Read the records at ``offsets``.

        Raises:
            DatasetError: 500, the file has changed since the server started; 400, the records are
                larger than a response may be.
        """
        try:
            with self.path.open("rb") as file:
                if _version(file) == self.version:
                    return _read_all(file, offsets)
        except OSError:
            pass  # report a removed file as changed
        raise internal_error(
            f"{self.path.name} has changed since the server started; restart the server"
        )


class Tables:
    """Tables by dataset name; empty without a folder."""

    def __init__(self, folder: Path | None) -> None:
        """Index all files of the folder.

        Raises:
            ConfigError: The folder or a file is invalid; the message names file and line.
        """
        self._tables: dict[str, Table] = {}
        for path in _files(folder) if folder else ():
            name = dataset_name(path.stem.removeprefix(PREFIX))
            if name in self._tables:
                raise _unusable(path, f"the dataset {name} has two files; remove one")
            self._tables[name] = _table(path)

    def page(self, dataset: str, offset: int, limit: int) -> list[Record]:
        """Read at most ``limit`` records from ``offset`` on, in the order of their ids.

        Raises:
            DatasetError: 400, the dataset has no table.
        """
        table = self._table(dataset)
        return table.read(table.offsets[offset : offset + limit])

    def with_record(self, dataset: str, key: Key, config: SubmitConfig) -> SubmitConfig:
        """Return the config with a record: its own, else the one from the table.

        Raises:
            DatasetError: 400, the dataset has no table; 404, the table has no such record.
        """
        if config.provided_data:
            return config
        table = self._table(dataset)
        if str(key) not in table.by_key:
            raise not_found(f"{dataset} has no record with the id {key!r}"[:500])
        [record] = table.read([table.by_key[str(key)]])
        return config.model_copy(update={"provided_data": record})

    def _table(self, dataset: str) -> Table:
        if dataset in self._tables:
            return self._tables[dataset]
        raise bad_request(
            f"this server has no table of records for {dataset[:200]}: "
            "send the record in config.provided_data"
        )


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ConfigError(f"PLUMBLINE_SANDBOX_DATASETS: {folder} is not a folder; name one")
    return sorted(folder.glob("*.jsonl"))


def _table(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            return _indexed(path, file)
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error}); check its permissions") from None


def _indexed(path: Path, file: BinaryIO) -> Table:
    version = _version(file)
    order: list[tuple[bool, Key, int]] = []
    first: dict[str, int] = {}
    further: dict[str, int] = {}
    for number, offset, record in _records(path, file):
        keys = [record[name] for name in KEYS if isinstance(record.get(name), int | str)]
        if not keys:
            raise _unusable(path, f"line {number} has none of {', '.join(KEYS)}; add an id")
        if first.setdefault(str(keys[0]), offset) != offset:
            raise _unusable(path, f"line {number} has the id {keys[0]!r} again; remove one")
        further.update((str(key), offset) for key in keys[1:])
        order.append((isinstance(keys[0], str), keys[0], offset))
    return Table(path, version, [offset for _, _, offset in sorted(order)], further | first)


def _records(path: Path, file: BinaryIO) -> Iterator[tuple[int, int, Record]]:
    """Yield line number, offset and content of each record."""
    offset = 0
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                record = _record(line)
            except ValueError as error:
                raise _unusable(path, f"line {number}: {error}; correct the file") from None
            yield number, offset, record
        offset += len(line)


def _version(file: BinaryIO) -> Version:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _read_all(file: BinaryIO, offsets: list[int]) -> list[Record]:
    records: list[Record] = []
    size = 0
    for offset in offsets:
        file.seek(offset)
        line = file.readline()
        size += len(line)
        if records and size > PAGE_LIMIT:
            raise bad_request(f"the page has more than {PAGE_LIMIT} bytes: send a smaller limit")
        records.append(_record(line))
    return records


def _record(line: bytes) -> Record:
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def _unusable(path: Path, cause: str) -> ConfigError:
    return ConfigError(" ".join(f"{path}: {cause}".splitlines()))


NO_TABLES = Tables(None)
