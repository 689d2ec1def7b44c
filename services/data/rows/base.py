"""What a source gives: its rows, one at a time."""

from collections.abc import Iterator
from typing import Any

# Where it stands (``file:line``, ``file: row n``), and its fields.
Row = tuple[str, dict[str, Any]]
Rows = Iterator[Row]
