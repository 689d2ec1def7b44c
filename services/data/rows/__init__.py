"""Row sources: local files, the Hugging Face hub and SandboxFusion, one row at a time."""

from collections.abc import Iterator

# JSON values by field name, as the source has them.
Fields = dict[str, object]
# The row's place (``file:line`` or ``file: row n``) and its fields.
Row = tuple[str, Fields]
Rows = Iterator[Row]
