"""Documents of parquet: every string in a row, wherever it is nested."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from services.data.contamination.files import Part, open_file
from services.data.contamination.lines import RowCounter, strings
from services.data.contamination.tally import Document
from shared.reading import data_error, reading

_BATCH_BYTES = 1 << 22
_MOST_ROWS = 1024


def read_rows(part: Part, counter: RowCounter) -> Iterator[Document]:
    """Yield the rows of the part's row groups.

    Columns without text (numbers, times, raw bytes) are left out. Memory grows with the largest
    page, which parquet has whole, so with a single value of tens of megabytes.

    Raises:
        DataError: While iterating: the file cannot be read, or no column has text.
    """
    with reading(part.path), open_file(part.path) as file:
        table = pq.ParquetFile(file, page_checksum_verification=True)
        columns = [field.name for field in table.schema_arrow if _has_text(field.type)]
        if not columns:
            types = ", ".join(f"{field.name}: {field.type}" for field in table.schema_arrow)
            raise data_error(part.path, f"no column has text ({types}); leave the file out")
        groups = list(range(part.start, table.num_row_groups if part.end is None else part.end))
        batches = table.iter_batches(
            _rows_at_once(table), row_groups=groups, columns=columns, use_threads=False
        )
        for batch in batches:
            for row in batch.to_pylist():
                counter.rows += 1
                yield Document(counter.rows, strings(row))


def _has_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    if pa.types.is_nested(kind):
        return any(_has_text(kind.field(at).type) for at in range(kind.num_fields))
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _rows_at_once(table: pq.ParquetFile) -> int:
    """As many rows as make a batch of some megabytes; at least one."""
    groups = range(table.num_row_groups)
    size = sum(table.metadata.row_group(group).total_byte_size for group in groups)
    rows = max(1, table.metadata.num_rows)
    return max(1, min(_MOST_ROWS, _BATCH_BYTES * rows // max(1, size)))
