"""Row sources: local files, the Hugging Face hub and SandboxFusion, one row at a time."""

from collections.abc import Iterator
from typing import Any

# Its place (``file:line`` or ``file: row n``) and its fields, as the source has them.
Row = tuple[str, dict[str, Any]]
Rows = Iterator[Row]
