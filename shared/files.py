"""Files that are whole or not there: written under a temporary name, then renamed."""

import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Replace a local file in one step; a reader sees the old content or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
