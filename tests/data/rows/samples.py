"""The same rows in every supported file format."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = [
    {
        "name": f"No. {number}",
        "text": "grün\r\n",
        "number": number,
        "limit": {"seconds": 2, "nanos": number} if number else None,
        "tags": ["a", ""],
        "tests": {"input": ["1\n"] * number, "output": ["2\n"] * number},
        "solutions": [{"language": 3, "solution": "x"}] * number,
    }
    for number in range(4)
]


def json_lines(path: Path) -> None:
    path.write_bytes(_lines())


def gzip_lines(path: Path) -> None:
    path.write_bytes(gzip.compress(_lines()))


def json_array(path: Path) -> None:
    path.write_text(json.dumps(ROWS, indent=1))


def gzip_array(path: Path) -> None:
    path.write_bytes(gzip.compress(json.dumps(ROWS).encode()))


def parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=3)


def arrow_stream(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def arrow_file(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=3)


def saved(path: Path) -> None:
    """As ``save_to_disk`` does it: two shards, in the order of their names."""
    path.mkdir()
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, rows in zip(names, (ROWS[:3], ROWS[3:]), strict=True):
        table = pa.Table.from_pylist(rows, schema=pa.Table.from_pylist(ROWS).schema)
        with pa.ipc.new_stream(str(path / name), table.schema) as writer:
            writer.write_table(table)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (path / "state.json").write_text(json.dumps(state))
    (path / "dataset_info.json").write_text("{}")


FORMS: dict[str, Callable[[Path], None]] = {
    "lines.jsonl": json_lines,
    "lines.jsonl.gz": gzip_lines,
    "array.json": json_array,
    "array.json.gz": gzip_array,
    "table.parquet": parquet,
    "stream.arrow": arrow_stream,
    "file.arrow": arrow_file,
    "saved": saved,
}


def _lines() -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
